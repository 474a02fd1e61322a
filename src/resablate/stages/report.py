"""Stage `report`: the root pipeline's page, from what the other stages left."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resablate import params, paths, reported, results
from resablate.arms import Arms
from resablate.errors import run_command
from resablate.files import write_text
from resablate.provenance import Provenance
from resablate.report import finding, lineage, path, views
from resablate.report.curves import Chart, chart
from resablate.report.page import Page, page
from resablate.results import Curve, Result

PIPELINE = "main"
TITLE = "Partial residual ablations of Pre-LN transformers"
FIGURES = {
    "figure1": "Figure 1. Validation curves of every configuration, a panel an implementation",
    "figure2": "Figure 2. Gradient norm of block 0, hidden-norm growth, and the outcome",
    "figure3": "Figure 3. Best validation loss of every seed, with mean and 95% interval",
    "figure4": "Figure 4. AttnOnly by seed against the floor, and all configurations",
}
RUN_COLUMNS = (
    "stage",
    "status",
    "best_val_loss",
    "best_step",
    "final_val_loss",
    "full_val_loss",
    "n_params",
    "steps",
    "escape_step",
)
PINNED = Path("requirements-numerics.lock")
SETTINGS = ("numerics", "dtype", "device", "threads")


def charts(runs: list[Result], curves: Mapping[str, Curve], floor: float) -> list[Chart]:
    """Return the curves that a reader can ask for their runs."""
    val = chart(
        "val_loss",
        "Validation loss",
        "val_loss",
        "nats per token",
        runs,
        curves,
        {f"floor {floor:.3f}": floor},
    )
    gradient = ("grad_norm", "Gradient norm of block 0", "grad_norm_block0", "L2, before clipping")
    return [val, chart(*gradient, runs, curves, log=True)]


def environment(declared: params.Params, runs: list[Result]) -> list[tuple[str, str]]:
    """Return what decides bits besides code, parameters and data: settings and versions."""
    cells = dict.fromkeys(run.key[:3] for run in runs)
    resolved = [declared.resolve(*cell) for cell in cells]
    shown = []
    for name in SETTINGS:
        values = dict.fromkeys(str(getattr(run, name)) for run in resolved)
        shown.append((name, ", ".join(values)))
    lines = PINNED.read_text(encoding="utf-8").splitlines()
    versions = [line for line in lines if line and not line.startswith("#")]
    return [*shown, ("pinned", ", ".join(versions))]


def formulas(registry: reported.Registry) -> dict[str, str]:
    """Return what stands in the cells of the table of reported values."""
    said = {}
    for identity, entry in registry.entries.items():
        said[f"reported.{identity}.reported"] = f"as printed: {entry.source}"
        said[f"reported.{identity}.here"] = registry.quantities[entry.quantity].means
        said[f"reported.{identity}.difference"] = "here − reported"
    return said


def content() -> Page:
    """Read everything that the page shows."""
    declared = params.load()
    runs = results.read_runs(paths.RUNS_CSV)
    summary: dict[str, Any] = results.read_json(paths.SUMMARY, "run `dvc repro aggregate`")
    scale = runs[0].key.scale
    first = [run for run in runs if run.key.scale == scale]
    curves = {
        run.key.stage: results.read_curve(
            run.key.paths(PIPELINE).curve, f"run `dvc repro {run.key.stage}`"
        )
        for run in first
    }
    tables = views.tables(paths.TABLES)
    return Page(
        pipeline=PIPELINE,
        title=TITLE,
        finding=finding.sentences(Arms(runs), summary),
        charts=charts(first, curves, summary[scale]["floor"]),
        tables=tables,
        figures=[views.figure(paths.PLOTS / f"{name}.svg", text) for name, text in FIGURES.items()],
        runs=views.runs(paths.RUNS_CSV, RUN_COLUMNS),
        environment=environment(declared, runs),
        lineage=lineage.compact(
            Provenance(Path()), views.numbers(tables), formulas(reported.load())
        ),
    )


def main() -> None:
    """Write plots/report.html."""
    write_text(path(PIPELINE), page(content()))


if __name__ == "__main__":
    run_command(main)
