"""Stage `figures` of paper/dvc.yaml: Figures 1 to 5 in the paper's form, of the runs there are."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from resablate import labels, paper, plotting, results
from resablate.errors import UserError, run_command
from resablate.paper import PaperKey
from resablate.stages import figures
from resablate.stages.figures import Data

WIDER = 0.35  # positions between two implementations' marks


def load() -> list[Data]:
    """Return what `aggregate` and the runs left, a scale each."""
    read = results.read_runs(paper.RUNS_CSV)
    runs = [replace(run, key=PaperKey(*run.key)) for run in read]
    summary = results.read_json(paper.SUMMARY, f"run `dvc repro -s {paper.DVC_FILE}:aggregate`")
    scales = list(dict.fromkeys(run.key.scale for run in runs))
    if not scales or not set(scales) <= set(summary):
        raise UserError(
            f"{paper.RUNS_CSV} and {paper.SUMMARY} do not belong together; run"
            f" `dvc repro -f -s {paper.DVC_FILE}:aggregate`"
        )
    return [figures.gather(paper.PIPELINE, scale, runs, summary) for scale in scales]


def title(what: str, of: Sequence[Data]) -> str:
    """Return a heading over several scales, with the count of runs that are not there."""
    runs = list(chain.from_iterable(data.runs for data in of))
    missing = sum(run.status == results.NOT_RUN for run in runs)
    scales = " and ".join(labels.scale(data.scale) for data in of)
    return f"{what}, {scales}" + (f", {missing} of {len(runs)} runs not run" if missing else "")


def figure1(of: Sequence[Data]) -> Figure:
    """Validation curves of nanoGPT, or else of the one that ran, a panel a scale."""
    figure, axes = plotting.figure(len(of), 4.5, 4.4)
    for ax, data in zip(axes, of, strict=True):
        impl = data.prefer("nanogpt")
        drawn = [curve for config in data.configs for curve in data.curves_of(impl, config)]
        if drawn:
            known = [loss for curve in drawn for loss in curve["val_loss"] if math.isfinite(loss)]
            floor = [] if data.floor is None else [data.floor]
            figures.val_curves(ax, data, impl, [*floor, *known], named=True)
        else:
            plotting.empty(ax, "not run")
        ax.set_title(f"{labels.impl(impl)}, {labels.scale(data.scale)}")
    axes[0].set_ylabel("validation loss, nats per token")
    figure.suptitle(title("Validation loss: each seed (thin) and mean", of), fontsize=10.5)
    plotting.legend_below(figure, axes)
    return figure


def figure5(of: Sequence[Data]) -> Figure:
    """AttnOnly by seed at the largest scale, and its gap above Full at each."""
    figure, axes = plotting.figure(2, 4.5, 4.2)
    large = of[-1]
    impl = large.prefer("residualgpt")
    if any(run.status != results.NOT_RUN for run in large.arm(impl, "attn_only")):
        figures.against_ffn_only(axes[0], large, impl)
    else:
        plotting.empty(axes[0], "not run")
    axes[0].set_title(f"(a) {labels.impl(impl)}, {labels.scale(large.scale)}: AttnOnly by seed")
    gaps(axes[1], of)
    axes[1].set_title("(b) AttnOnly above Full: each seed and mean")
    figure.suptitle(title("AttnOnly by scale", of), fontsize=10.5)
    plotting.legend_below(figure, axes)
    return figure


def gaps(ax: Axes, of: Sequence[Data]) -> None:
    """Draw best_val_loss of each AttnOnly seed in percent above the mean of Full."""
    impls = list(dict.fromkeys(impl for data in of for impl in data.impls))
    if not any(_percent(data, impl) for data in of for impl in data.impls):
        plotting.empty(ax, "AttnOnly and Full not both run")
        return
    shift = dict(zip(impls, plotting.beside(0, len(impls), WIDER), strict=True))
    looks = dict(zip(impls, plotting.OTHER_COLORS, strict=False))
    for i, impl in enumerate(impls):
        label: str | None = labels.impl(impl)
        for x, data in enumerate(of):
            values = _percent(data, impl)
            at = x + shift[impl]
            if not values:
                _write(ax, at, "not both run", looks[impl])
                continue
            mean = sum(values) / len(values)
            xs = plotting.beside(at, len(values), 0.15)
            ax.plot(xs, values, "sD"[i % 2], color=looks[impl], markersize=5, label=label)
            ax.plot([at - 0.13, at + 0.13], [mean, mean], color=looks[impl], linewidth=1.5)
            ax.annotate(f"{mean:+.1f}%", (at, max(values)), **figures.ABOVE)
            label = None
    ax.axhline(0, color=plotting.GREY, linewidth=0.8, linestyle=":", zorder=0)
    ax.margins(y=0.15)
    plotting.categories(ax, [labels.scale(data.scale) for data in of])
    ax.set_ylabel("gap, % of Full's mean")


def _percent(data: Data, impl: str) -> list[float]:
    """Return each finished AttnOnly seed's gap above the mean of Full, in percent of it."""
    full = data.summary.get(impl, {}).get("full", {}).get("best_val_loss")
    if full is None:
        return []
    return [100 * (best / full - 1) for _, best in figures.finished(data.arm(impl, "attn_only"))]


def _write(ax: Axes, x: float, text: str, color: Any) -> None:
    above = {"transform": ax.get_xaxis_transform(), "rotation": 90, "ha": "center"}
    ax.text(x, 0.2, text, color=color, fontsize=8, **above)


def main() -> None:
    """Write plots/paper/figure1 to figure5, as SVG and PNG."""
    of = load()
    small = of[0]
    with plotting.styled():
        made = [figure1(of), figures.figure2(small), figures.figure3(small)]
        made += [figures.figure4(small), figure5(of)]
        for number, figure in enumerate(made, start=1):
            plotting.save(figure, paper.PLOTS / f"figure{number}")


if __name__ == "__main__":
    run_command(main)
