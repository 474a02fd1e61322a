"""Stage `aggregate` of paper/dvc.yaml: the runs that are there become runs.csv, a summary, tables.

Unlike the root's, it goes on while runs are missing, since the grid takes GPU-weeks: each is
printed as not run and counted, and is in no mean. Files of no run of the grid are refused here too.
"""

from typing import Any

from resablate import cells, paper, papertables, params, paths, results, tables
from resablate.arms import Arms, Floor, summary_text
from resablate.errors import run_command
from resablate.files import write_text
from resablate.paper import PIPELINE, PaperKey
from resablate.params import Params
from resablate.results import Result

SMALL, LARGE = "gpt10m", "gpt124m"  # of Tables 2 and 3, and of Table 4
UNKNOWN: Floor = {"floor": None, "ngram_ladder": {}}


def begun(key: PaperKey) -> bool:
    """Tell whether a run has left any of the files that are read here."""
    files = key.paths(PIPELINE)
    return files.metrics.is_file() or files.curve.is_file()


def floor(declared: Params, scale: str, *, needed: bool) -> Floor:
    """Return the floor of a scale's data; of data not prepared, and not needed yet, an unknown."""
    dataset: Any = declared.scales[scale].dataset
    if needed or paths.data_document(dataset).is_file():
        return results.read_floor(dataset)
    return UNKNOWN


def read(declared: Params, keys: list[PaperKey]) -> tuple[list[Result], dict[str, Floor]]:
    """Return every planned run, those that are not there as such, and each scale's floor."""
    there = [key for key in keys if begun(key)]
    results.refuse_missing(PIPELINE, there)
    results.refuse_extra(PIPELINE, keys)
    scales = dict.fromkeys(key.scale for key in keys)
    needed = {key.scale for key in there}
    floors = {scale: floor(declared, scale, needed=scale in needed) for scale in scales}
    runs = [
        results.read(PIPELINE, key, floors[key.scale]["floor"])
        if key in there
        else results.not_run(key)
        for key in keys
    ]
    return runs, floors


def make_tables(declared: Params, arms: Arms, floors: dict[str, Floor]) -> list[cells.Table]:
    """Return Tables 1 to 5."""
    setups = {group: declared.resolve(*group, "full") for group in arms.groups()}
    nano = [tables.configurations(2, arms, scale, floors[scale]) for scale in (SMALL, LARGE)]
    return [
        papertables.setup(setups),
        papertables.joined(*nano, LARGE),
        tables.configurations(3, arms, SMALL, floors[SMALL]),
        tables.configurations(4, arms, LARGE, floors[LARGE], form=3),
        tables.asymmetry(arms, floors),
    ]


def main() -> None:
    """Write metrics/paper/: runs.csv, summary.json and tables/."""
    declared = params.load()
    runs, floors = read(declared, paper.load(declared).cells())
    arms = Arms(runs)
    made = make_tables(declared, arms, floors)
    files = {paper.RUNS_CSV: results.runs_text(runs), paper.SUMMARY: summary_text(arms, floors)}
    for table in made:
        files |= cells.texts(paper.TABLES, table)
    for path, text in files.items():
        write_text(path, text)
    counts = dict.fromkeys((*results.STATUSES, results.NOT_RUN), 0)
    for run in runs:
        counts[run.status] += 1
    listed = ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in counts.items())
    print(f"{len(runs)} runs planned: {listed}", flush=True)


if __name__ == "__main__":
    run_command(main)
