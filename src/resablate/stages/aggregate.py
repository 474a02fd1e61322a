"""Stage `aggregate`: the runs of the declared grid become one table of runs, a summary, tables.

Fails, and writes nothing, when a run of the grid is missing or a run that is not in the grid lies
on disk: a removed seed must not be averaged, a missing one not be skipped.
"""

from collections.abc import Sequence
from pathlib import Path

from resablate import (
    beside,
    cells,
    declared,
    inconsistencies,
    latex,
    paths,
    reported,
    reproduced,
    results,
    tables,
)
from resablate.arms import Arms, summary_text
from resablate.errors import run_command
from resablate.files import write_text
from resablate.results import Result

PIPELINE = "main"


def read() -> list[Result]:
    """Return the runs of the declared grid, from their files."""
    given = declared.load()
    grid = given.grid
    keys = results.planned(grid.scale, grid.impl, grid.config, grid.seed)
    results.refuse_missing(PIPELINE, keys)
    results.refuse_extra(PIPELINE, keys)
    floors = {scale: results.read_floor(given.scales[scale].dataset) for scale in grid.scale}
    return [results.read(PIPELINE, key, floors[key.scale]["floor"]) for key in keys]


def derive(runs: Sequence[Result]) -> dict[Path, str]:
    """Return every file that this stage writes: metrics/runs.csv, metrics/summary.json, tables."""
    given = declared.load()
    names = list(dict.fromkeys(run.key.scale for run in runs))
    floors = {name: results.read_floor(given.scales[name].dataset) for name in names}
    arms = Arms(list(runs))
    first = names[0]
    made = [tables.configurations(n, arms, first, floors[first]) for n in tables.PER_CONFIGURATION]
    made.append(tables.asymmetry(arms, floors))
    registry, here = reported.load(), reproduced.known(given, arms, floors)
    made = [beside.below(table, registry, here) for table in made]
    made += [beside.table(registry, here), inconsistencies.table(registry, here)]
    files = {paths.RUNS_CSV: results.runs_text(runs), paths.SUMMARY: summary_text(arms, floors)}
    for table in made:
        files |= cells.texts(paths.TABLES, table) | latex.texts(paths.TABLES, table)
    return files


def main() -> None:
    """Write metrics/runs.csv, metrics/summary.json and metrics/tables/."""
    for path, text in derive(read()).items():
        write_text(path, text)


if __name__ == "__main__":
    run_command(main)
