"""What the pages of several pipelines have in common, as text."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from resablate import results
from resablate.params import Run
from resablate.report.curves import Chart, chart
from resablate.reported import Registry
from resablate.results import Curve, Result

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


def curves(pipeline: str, runs: Iterable[Result]) -> dict[str, Curve]:
    """Return the curve of each run by its stage."""
    return {
        run.key.stage: results.read_curve(
            run.key.paths(pipeline).curve, f"run `dvc repro {run.key.stage}`"
        )
        for run in runs
    }


def charts(
    runs: Sequence[Result], of: Mapping[str, Curve], floor: float, scale: str = ""
) -> list[Chart]:
    """Return the curves that a reader can ask for their runs; `scale` where there are several."""
    where = f", scale {scale}" if scale else ""
    val = chart(
        f"val_loss{scale}",
        f"Validation loss{where}",
        "val_loss",
        "nats per token",
        runs,
        of,
        {f"floor {floor:.3f}": floor},
    )
    title = f"Gradient norm of block 0{where}"
    unit = "L2, before clipping"
    gradient = chart(f"grad_norm{scale}", title, "grad_norm_block0", unit, runs, of, log=True)
    return [val, gradient]


def environment(resolved: Iterable[Run]) -> list[tuple[str, str]]:
    """Return what decides bits besides code, parameters and data: settings and versions."""
    runs = list(resolved)
    shown = []
    for name in SETTINGS:
        values = dict.fromkeys(str(getattr(run, name)) for run in runs)
        shown.append((name, ", ".join(values)))
    lines = PINNED.read_text(encoding="utf-8").splitlines()
    versions = [line for line in lines if line and not line.startswith("#")]
    return [*shown, ("pinned", ", ".join(versions))]


def formulas(registry: Registry, pipeline: str = "") -> dict[str, str]:
    """Return what stands in the cells of reported values, alone and under the paper's tables."""
    said = {}
    prefix = f"{pipeline}." if pipeline else ""
    for identity, entry in registry.entries.items():
        table, _, row = identity.partition(".")
        for cell in (f"reported.{identity}", f"{prefix}{table}.paper.{row}"):
            said[f"{cell}.reported"] = f"as printed: {entry.source}"
            said[f"{cell}.here"] = registry.quantities[entry.quantity].means
            said[f"{cell}.difference"] = "here − reported"
    return said
