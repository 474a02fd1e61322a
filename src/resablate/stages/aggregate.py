"""Stage `aggregate`: the runs of the declared grid become one table of runs, a summary, tables.

Fails, and writes nothing, when a run of the grid is missing or a run that is not in the grid lies
on disk: a removed seed must not be averaged, a missing one not be skipped.
"""

from resablate import cells, params, paths, results, tables
from resablate.arms import Arms, write_summary
from resablate.errors import run_command

PIPELINE = "main"


def main() -> None:
    """Write metrics/runs.csv, metrics/summary.json and metrics/tables/."""
    declared = params.load()
    grid = declared.grid
    keys = results.planned(grid.scale, grid.impl, grid.config, grid.seed)
    results.refuse_missing(PIPELINE, keys)
    results.refuse_extra(PIPELINE, keys)
    floors = {scale: results.read_floor(declared.scales[scale].dataset) for scale in grid.scale}
    runs = [results.read(PIPELINE, key, floors[key.scale]["floor"]) for key in keys]
    arms = Arms(runs)
    first = grid.scale[0]
    made = [tables.configurations(n, arms, first, floors[first]) for n in tables.PER_CONFIGURATION]
    made.append(tables.asymmetry(arms, floors))
    results.write_runs(paths.RUNS_CSV, runs)
    write_summary(paths.SUMMARY, arms, floors)
    for table in made:
        cells.write(paths.TABLES, table)


if __name__ == "__main__":
    run_command(main)
