"""Stage `report` of paper/dvc.yaml: its page, from the runs that are there."""

from pathlib import Path
from typing import Any

from resablate import labels, paper, params, reported, results
from resablate.arms import Arms
from resablate.errors import run_command
from resablate.files import write_text
from resablate.paper import PIPELINE, PaperKey
from resablate.provenance import Provenance
from resablate.report import contents, finding, lineage, path, views
from resablate.report.curves import Chart
from resablate.report.page import Page, page
from resablate.results import Result

TITLE = "Partial residual ablations at the paper's own scales"
FIGURES = {
    "figure1": "Figure 1. Validation curves, a panel a scale",
    "figure2": "Figure 2. Gradient norm of block 0, hidden-norm growth, and the outcome, 10M",
    "figure3": "Figure 3. Best validation loss of every seed, with mean and 95% interval, 10M",
    "figure4": "Figure 4. AttnOnly by seed against the floor, and all configurations, 10M",
    "figure5": "Figure 5. AttnOnly by scale: seeds at the largest, and the gap above Full at each",
}


def sentences(runs: list[Result], summary: dict[str, Any]) -> list[str]:
    """Return how many runs there are, and what those that finished say, by scale."""
    statuses = [run.status for run in runs]
    names = (*results.STATUSES, results.NOT_RUN)
    counts = ", ".join(f"{statuses.count(name)} {name.replace('_', ' ')}" for name in names)
    said = [f"{len(runs)} runs planned: {counts}."]
    if results.NOT_RUN in statuses:
        said.append(
            "What has not been run is printed as such below, beside what the paper reports;"
            " dvc repro paper/dvc.yaml runs what is missing."
        )
    known = {run.key.scale for run in runs if run.status == "finished"}
    return said + finding.sentences(Arms([r for r in runs if r.key.scale in known]), summary)


def charts(runs: list[Result], summary: dict[str, Any]) -> list[Chart]:
    """Return the curves of each scale of which runs are there."""
    there = [run for run in runs if run.status != results.NOT_RUN]
    made = []
    for scale in dict.fromkeys(run.key.scale for run in there):
        of = [run for run in there if run.key.scale == scale]
        curves = contents.curves(PIPELINE, of)
        made += contents.charts(of, curves, summary[scale]["floor"], labels.scale(scale))
    return made


def content() -> Page:
    """Read everything that the page shows."""
    rows = results.read_runs(paper.RUNS_CSV)
    runs = [Result(PaperKey(*run.key), run.status, run.values) for run in rows]
    remedy = f"run `dvc repro -s {paper.DVC_FILE}:aggregate`"
    summary: dict[str, Any] = results.read_json(paper.SUMMARY, remedy)
    declared = params.load()
    cells = dict.fromkeys(run.key[:3] for run in runs)
    tables = views.tables(paper.TABLES)
    listed = views.runs(paper.RUNS_CSV, contents.RUN_COLUMNS)
    formulas = contents.formulas(reported.load(), PIPELINE)
    return Page(
        pipeline=PIPELINE,
        title=TITLE,
        finding=sentences(runs, summary),
        charts=charts(runs, summary),
        tables=tables,
        figures=[views.figure(paper.PLOTS / f"{name}.svg", text) for name, text in FIGURES.items()],
        runs=[run for run in listed if run["status"] != results.NOT_RUN],
        environment=contents.environment(declared.resolve(*cell) for cell in cells),
        lineage=lineage.compact(Provenance(Path()), views.numbers(tables), formulas),
    )


def main() -> None:
    """Write plots/paper/report.html."""
    write_text(path(PIPELINE), page(content()))


if __name__ == "__main__":
    run_command(main)
