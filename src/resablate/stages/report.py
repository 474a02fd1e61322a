"""Stage `report`: the root pipeline's page, from what the other stages left."""

from pathlib import Path
from typing import Any

from resablate import params, paths, reported, results
from resablate.arms import Arms
from resablate.errors import run_command
from resablate.files import write_text
from resablate.provenance import Provenance
from resablate.report import contents, finding, lineage, path, views
from resablate.report.page import Page, page

PIPELINE = "main"
TITLE = "Partial residual ablations of Pre-LN transformers"
FIGURES = {
    "figure1": "Figure 1. Validation curves of every configuration, a panel an implementation",
    "figure2": "Figure 2. Gradient norm of block 0, hidden-norm growth, and the outcome",
    "figure3": "Figure 3. Best validation loss of every seed, with mean and 95% interval",
    "figure4": "Figure 4. AttnOnly by seed against the floor, and all configurations",
}


def content() -> Page:
    """Read everything that the page shows."""
    declared = params.load()
    runs = results.read_runs(paths.RUNS_CSV)
    summary: dict[str, Any] = results.read_json(paths.SUMMARY, "run `dvc repro aggregate`")
    scale = runs[0].key.scale
    first = [run for run in runs if run.key.scale == scale]
    curves = contents.curves(PIPELINE, first)
    cells = dict.fromkeys(run.key[:3] for run in runs)
    tables = views.tables(paths.TABLES)
    return Page(
        pipeline=PIPELINE,
        title=TITLE,
        finding=finding.sentences(Arms(runs), summary),
        charts=contents.charts(first, curves, summary[scale]["floor"]),
        tables=tables,
        figures=[views.figure(paths.PLOTS / f"{name}.svg", text) for name, text in FIGURES.items()],
        runs=views.runs(paths.RUNS_CSV, contents.RUN_COLUMNS),
        environment=contents.environment(declared.resolve(*cell) for cell in cells),
        lineage=lineage.compact(
            Provenance(Path()), views.numbers(tables), contents.formulas(reported.load())
        ),
    )


def main() -> None:
    """Write plots/report.html."""
    write_text(path(PIPELINE), page(content()))


if __name__ == "__main__":
    run_command(main)
