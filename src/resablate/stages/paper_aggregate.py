"""Stage `aggregate` of paper/dvc.yaml: the runs that are there become runs.csv, a summary, tables.

Unlike the root's, it goes on while runs are missing, since the grid takes GPU-weeks: each is
printed as not run and counted, and is in no mean. Files of no run of the grid are refused here too.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from resablate import (
    beside,
    cells,
    declared,
    latex,
    paper,
    papertables,
    paths,
    reported,
    reproduced,
    results,
    tables,
)
from resablate.arms import Arms, Floor, summary_text
from resablate.errors import run_command
from resablate.files import write_text
from resablate.paper import PIPELINE, PaperKey
from resablate.params import Params
from resablate.results import Result
from resablate.sizes import VOCABULARY

SMALL, LARGE = "gpt10m", "gpt124m"  # of Tables 2 and 3, and of Table 4
UNKNOWN: Floor = {"floor": None, "ngram_ladder": {}}


def begun(key: PaperKey) -> bool:
    """Tell whether a run has left any of the files that are read here."""
    files = key.paths(PIPELINE)
    return files.metrics.is_file() or files.curve.is_file()


def floor(given: Params, scale: str, *, needed: bool) -> Floor:
    """Return the floor of a scale's data; of data not prepared, and not needed yet, an unknown."""
    dataset: Any = given.scales[scale].dataset
    if needed or paths.data_document(dataset).is_file():
        return results.read_floor(dataset)
    return UNKNOWN


def read(given: Params) -> list[Result]:
    """Return every planned run, those that are not there as such."""
    keys = paper.load(given).cells()
    there = [key for key in keys if begun(key)]
    results.refuse_missing(PIPELINE, there)
    results.refuse_extra(PIPELINE, keys)
    scales = dict.fromkeys(key.scale for key in there)
    floors = {scale: floor(given, scale, needed=True)["floor"] for scale in scales}
    return [
        results.read(PIPELINE, key, floors[key.scale]) if key in there else results.not_run(key)
        for key in keys
    ]


def make_tables(given: Params, arms: Arms, floors: dict[str, Floor]) -> list[cells.Table]:
    """Return Tables 1 to 5."""
    setups = {group: given.resolve(*group, "full") for group in arms.groups()}
    nano = [tables.configurations(2, arms, scale, floors[scale]) for scale in (SMALL, LARGE)]
    return [
        papertables.setup(setups),
        papertables.joined(*nano, LARGE),
        tables.configurations(3, arms, SMALL, floors[SMALL]),
        tables.configurations(4, arms, LARGE, floors[LARGE], form=3),
        tables.asymmetry(arms, floors),
    ]


def derive(runs: Sequence[Result]) -> dict[Path, str]:
    """Return every file that this stage writes: metrics/paper/runs.csv, summary.json, tables/."""
    given = declared.load()
    runs = [replace(run, key=PaperKey(*run.key)) for run in runs]
    arms = Arms(runs)
    finished = {arm.scale for arm in arms.all if arm.finished}
    floors = {
        scale: floor(given, scale, needed=scale in finished)
        for scale in dict.fromkeys(run.key.scale for run in runs)
    }
    known = {scale: of for scale, of in floors.items() if of is not UNKNOWN}
    registry, here = reported.load(), reproduced.known(given, arms, known)
    # Parameters are counted before the data are here, as in Table 1.
    vocabulary = {dataset: {"vocab_size": size} for dataset, size in VOCABULARY.items()}
    here = replace(here, documents=vocabulary | dict(here.documents))
    files = {paper.RUNS_CSV: results.runs_text(runs), paper.SUMMARY: summary_text(arms, floors)}
    for made in make_tables(given, arms, floors):
        table = replace(beside.below(made, registry, here), pipeline=PIPELINE)
        files |= cells.texts(paper.TABLES, table) | latex.texts(paper.TABLES, table)
    return files


def main() -> None:
    """Write metrics/paper/: runs.csv, summary.json and tables/."""
    runs = read(declared.load())
    for path, text in derive(runs).items():
        write_text(path, text)
    counts = dict.fromkeys((*results.STATUSES, results.NOT_RUN), 0)
    for run in runs:
        counts[run.status] += 1
    listed = ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in counts.items())
    print(f"{len(runs)} runs planned: {listed}", flush=True)


if __name__ == "__main__":
    run_command(main)
