"""Stage `figures`: Figures 1 to 4 from the run table, the summary and the curves.

Means and intervals are the summary's; the only arithmetic here is the mean curve. All figures show
the grid's first scale.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from resablate import labels, paths, plotting, results
from resablate.errors import UserError, run_command
from resablate.results import Curve, Result

PIPELINE = "main"
MARGIN = 0.25  # nats of room around the losses of a y-axis
SPREAD = "seeds, mean and 95% interval"
ABOVE: dict[str, Any] = {  # a number over its point
    "xytext": (0, 6),
    "textcoords": "offset points",
    "ha": "center",
    "va": "bottom",
    "fontsize": 8,
}


@dataclass(frozen=True)
class Data:
    """Everything that is drawn: one scale's runs, their curves and their part of the summary."""

    scale: str
    runs: list[Result]
    curves: dict[str, Curve]  # by stage, of the runs that are there
    summary: dict[str, Any]

    @property
    def impls(self) -> list[str]:
        """Implementations, nanoGPT before ResidualGPT as in the paper."""
        return sorted(dict.fromkeys(run.key.impl for run in self.runs), key=_paper_order)

    @property
    def configs(self) -> list[str]:
        return list(dict.fromkeys(run.key.config for run in self.runs))

    @property
    def seeds(self) -> list[int]:
        return list(dict.fromkeys(run.key.seed for run in self.runs))

    @property
    def floor(self) -> float | None:
        return self.summary["floor"]

    def prefer(self, impl: str) -> str:
        """Return the implementation that the paper's figure shows, or the first that has runs."""
        there = [known for known in self.impls if self.has_run(known)] or self.impls
        return impl if impl in there else there[0]

    def has_run(self, impl: str) -> bool:
        return any(self.curves_of(impl, config) for config in self.configs)

    def arm(self, impl: str, config: str) -> list[Result]:
        return [run for run in self.runs if run.key[1:3] == (impl, config)]

    def curves_of(self, impl: str, config: str) -> list[Curve]:
        """Return the curves of an arm's runs, also of those that diverged."""
        stages = (run.key.stage for run in self.arm(impl, config))
        return [self.curves[stage] for stage in stages if stage in self.curves]

    def title(self, what: str) -> str:
        others = {"diverged": "diverged", results.NOT_RUN: "not run"}
        counts = {text: [r.status for r in self.runs].count(key) for key, text in others.items()}
        failed = "".join(
            f", {n} of {len(self.runs)} runs {text}" for text, n in counts.items() if n
        )
        seeds = f"n = {len(self.seeds)} seed{'s' * (len(self.seeds) > 1)}"
        return f"{what}, scale {labels.scale(self.scale)}, {seeds}{failed}"


def _paper_order(impl: str) -> int:
    known = list(labels.IMPLS)
    return known.index(impl) if impl in known else len(known)


def load() -> Data:
    """Read what `aggregate` and the runs left."""
    runs = results.read_runs(paths.RUNS_CSV)
    summary = results.read_json(paths.SUMMARY, "run `dvc repro aggregate`")
    if not runs or runs[0].key.scale not in summary:
        raise UserError(
            f"{paths.RUNS_CSV} and {paths.SUMMARY} do not belong together; run"
            " `dvc repro -f -s aggregate`"
        )
    return gather(PIPELINE, runs[0].key.scale, runs, summary)


def gather(pipeline: str, scale: str, planned: Sequence[Result], summary: dict[str, Any]) -> Data:
    """Return what is drawn of a scale, with the curves of its runs that are there."""
    runs = [run for run in planned if run.key.scale == scale]
    curves = {
        run.key.stage: results.read_curve(
            run.key.paths(pipeline).curve, f"run `dvc repro {run.key.stage}`"
        )
        for run in runs
        if run.status != results.NOT_RUN
    }
    return Data(scale, runs, curves, summary[scale])


def finished(runs: Sequence[Result], name: str = "best_val_loss") -> list[tuple[int, float]]:
    """Return (seed, value) of the finished runs that have the value."""
    pairs = [(run.key.seed, run[name]) for run in runs if run.status == "finished"]
    return [(seed, value) for seed, value in pairs if value is not None]


def figure1(data: Data) -> Figure:
    """Validation curves of every configuration, a panel an implementation."""
    figure, axes = plotting.figure(len(data.impls), 4.5, 4.4)
    complete = [data.curves[run.key.stage]["val_loss"] for run in data.runs if _ended(run)]
    losses = [data.floor, *chain.from_iterable(complete)]
    for ax, impl in zip(axes, data.impls, strict=True):
        val_curves(ax, data, impl, losses, named=ax is axes[-1])
        ax.set_title(labels.impl(impl))
        ax.label_outer()
    axes[0].set_ylabel("validation loss, nats per token")
    figure.suptitle(data.title("Validation loss: each seed (thin) and mean"), fontsize=10.5)
    plotting.legend_below(figure, axes)
    return figure


def val_curves(ax: Axes, data: Data, impl: str, losses: Sequence[float], *, named: bool) -> None:
    """Draw an implementation's curves; `losses` must fit, `named` labels the n-gram ladder."""
    for position, config in enumerate(data.configs):
        _curves(ax, data, impl, config, position)
    ax.set_ylim(min(losses) - MARGIN, max(losses) + 0.1)
    plotting.reference(ax, data.summary["ngram_ladder"], named=named)
    ax.set_xlabel("step")


def _ended(run: Result) -> bool:
    return run.status == "finished"


def _curves(ax: Axes, data: Data, impl: str, config: str, position: int) -> None:
    """Draw an arm's curves, and the mean of those that finished."""
    look = plotting.line(config, data.configs)
    arm = data.arm(impl, config)
    for curve in data.curves_of(impl, config):
        ax.plot(curve["step"], curve["val_loss"], color=look["color"], linewidth=0.6, alpha=0.5)
    complete = [data.curves[run.key.stage] for run in arm if _ended(run)]
    if complete:
        columns = zip(*(curve["val_loss"] for curve in complete), strict=True)
        mean = [math.fsum(column) / len(column) for column in columns]
        # Curves that lie on each other stay visible: their markers stand at different steps.
        every = (position, max(4, len(mean) // 8))
        label = labels.config(config)
        ax.plot(complete[0]["step"], mean, linewidth=1.8, markevery=every, label=label, **look)


def figure2(data: Data) -> Figure:
    """Block-0 gradient norm, hidden-norm growth and outcome."""
    figure, axes = plotting.figure(3, max(3.3, 0.85 * len(data.configs)), 3.9)
    drawn, outcome_of = data.prefer("nanogpt"), data.prefer("residualgpt")
    if data.has_run(drawn):
        _gradients(axes[0], data, drawn)
        _growth(axes[1], data, drawn)
    else:
        for ax in axes[:2]:
            plotting.empty(ax, "not run")
    outcome(axes[2], data, outcome_of)
    what = ("block-0 gradient norm\nbefore clipping, each seed", "hidden-norm growth, each seed")
    axes[0].set_title(f"(a) {labels.impl(drawn)}: {what[0]}")
    axes[1].set_title(f"(b) {labels.impl(drawn)}: {what[1]}\nand mean, last block / embedding")
    axes[2].set_title(f"(c) {labels.impl(outcome_of)}: best val loss,\n{SPREAD}")
    figure.suptitle(data.title("Diagnostics"), fontsize=10.5)
    plotting.legend_below(figure, axes)
    return figure


def _gradients(ax: Axes, data: Data, impl: str) -> None:
    """Draw every seed's gradient norm before clipping; zeros at a marked place."""
    arms = {config: data.curves_of(impl, config) for config in data.configs}
    norms = chain.from_iterable(c["grad_norm_block0"] for arm in arms.values() for c in arm)
    zero = plotting.log_axis_with_zero(ax, [norm for norm in norms if math.isfinite(norm)])
    for position, (config, arm) in enumerate(arms.items()):
        look = plotting.line(config, data.configs)
        for i, curve in enumerate(arm):
            shown = [norm if norm != 0 else zero for norm in curve["grad_norm_block0"]]
            every = (position, max(4, len(shown) // 8))
            label = labels.config(config) if i == 0 else None
            ax.plot(
                curve["step"],
                shown,
                linewidth=1,
                markersize=4,
                markevery=every,
                label=label,
                **look,
            )
    ax.set(xlabel="step", ylabel="L2 norm")


def _growth(ax: Axes, data: Data, impl: str) -> None:
    """Draw the growth of the hidden norm after training: seeds, and the mean in digits."""
    plotting.plain_log_axis(ax)
    ax.axhline(1, color=plotting.GREY, linewidth=0.8, linestyle=":", zorder=0)
    for x, config in enumerate(data.configs):
        values = [value for _, value in finished(data.arm(impl, config), "hidden_norm_growth")]
        look = plotting.line(config, data.configs) | {"linestyle": "none"}
        ax.plot(plotting.beside(x, len(values)), values, markersize=6, **look)
        if values:
            mean = data.summary[impl][config]["hidden_norm_growth"]
            ax.annotate(f"{mean:.2f}×", (x, max(values)), **ABOVE)
    plotting.categories(ax, [_two_lines(config) for config in data.configs])
    ax.set_ylabel("ratio of mean token norms")
    ax.margins(y=0.12)


def _two_lines(config: str) -> str:
    return labels.config(config).replace(" ", "\n")


def outcome(ax: Axes, data: Data, impl: str) -> None:
    """Draw best_val_loss of every configuration: seeds, mean and 95% interval, and the floor."""
    of_impl = data.summary[impl]
    names, reached = [], [data.floor - MARGIN, data.floor + MARGIN]
    for x, config in enumerate(data.configs):
        arm, summary = data.arm(impl, config), of_impl[config]
        losses = [loss for _, loss in finished(arm)]
        n = f"\nn={len(losses)} of {len(arm)}" if len(losses) < len(arm) else ""
        names.append(_two_lines(config) + n)
        look = plotting.line(config, data.configs)
        at = plotting.beside(x - 0.1, len(losses), 0.25)
        ax.plot(at, losses, **(look | {"linestyle": "none"}), markersize=6)
        if losses:
            _mean_and_interval(ax, x + 0.25, summary, look["color"])
            ends = (summary["lo"], summary["hi"])
            reached += [*losses, *(end for end in ends if end is not None)]
    room = 0.08 * (max(reached) - min(reached))
    ax.set_ylim(min(reached) - room, max(reached) + room)
    plotting.categories(ax, names)
    _floor(ax, data)
    ax.set_ylabel("nats per token")


def _mean_and_interval(ax: Axes, x: float, summary: dict[str, Any], color: str) -> None:
    mean, lo, hi = summary["best_val_loss"], summary["lo"], summary["hi"]
    spread = None if lo is None else [[mean - lo], [hi - mean]]
    ax.errorbar(x, mean, spread, fmt="_", color=color, markersize=9, capsize=3, linewidth=1.3)
    top = mean if hi is None else hi
    ax.annotate(f"{mean:.3f}", (x - 0.1, top), **ABOVE)


def _floor(ax: Axes, data: Data) -> None:
    label = f"unigram floor {data.floor:.3f}"
    ax.axhline(data.floor, color=plotting.GREY, linestyle=":", linewidth=1.2, label=label, zorder=0)


def by_seed(ax: Axes, data: Data, impl: str, configs: Sequence[str]) -> None:
    """Draw best_val_loss of configurations seed by seed; a diverged run is written, not dropped."""
    shift = dict(zip(configs, plotting.beside(0, len(configs), 0.28), strict=True))
    for config in configs:
        arm = data.arm(impl, config)
        best = dict(finished(arm))
        at = [data.seeds.index(seed) + shift[config] for seed in best]
        look = plotting.line(config, data.configs) | {"linestyle": "none"}
        ax.plot(at, best.values(), markersize=7, label=labels.config(config), **look)
        for run in arm:
            if not _ended(run):
                x = data.seeds.index(run.key.seed) + shift[config]
                above = {"transform": ax.get_xaxis_transform(), "rotation": 90, "ha": "center"}
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
                text = "diverged" if run.status == "diverged" else "not run"
                ax.text(x, 0.04, text, color=look["color"], fontsize=8, bbox=box, **above)
    if data.floor is not None:
        _floor(ax, data)
        low, high = ax.get_ylim()
        ax.set_ylim(min(low, data.floor - MARGIN), max(high, data.floor + MARGIN))
    plotting.categories(ax, [str(seed) for seed in data.seeds])
    ax.set_xlabel("seed")


def figure3(data: Data) -> Figure:
    """AttnOnly against FFNOnly, seed by seed, a panel an implementation."""
    figure, axes = plotting.figure(len(data.impls), 4.5, 3.8)
    for ax, impl in zip(axes, data.impls, strict=True):
        configs = [c for c in ("attn_only", "ffn_only") if data.arm(impl, c)]
        by_seed(ax, data, impl, configs)
        ax.set_title(labels.impl(impl))
    low = min(ax.get_ylim()[0] for ax in axes)
    high = max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set_ylim(low, high)
        ax.label_outer()
    axes[0].set_ylabel("best validation loss, nats per token")
    figure.suptitle(data.title("AttnOnly and FFNOnly by seed"), fontsize=10.5)
    plotting.legend_below(figure, axes)
    return figure


def against_ffn_only(ax: Axes, data: Data, impl: str) -> None:
    """Draw AttnOnly seed by seed, with its mean and that of FFNOnly."""
    by_seed(ax, data, impl, ["attn_only"])
    for config in ("attn_only", "ffn_only"):
        mean = data.summary[impl].get(config, {}).get("best_val_loss")
        if mean is not None:
            look = plotting.line(config, data.configs) | {"marker": None, "linewidth": 1.2}
            ax.axhline(mean, label=f"{labels.config(config)} mean {mean:.3f}", **look)
    ax.set_ylabel("best validation loss, nats per token")


def figure4(data: Data) -> Figure:
    """Every AttnOnly seed against the FFNOnly floor, and all configurations."""
    figure, axes = plotting.figure(2, 4.5, 4.2)
    impl = data.prefer("residualgpt")
    if data.arm(impl, "attn_only"):
        against_ffn_only(axes[0], data, impl)
        axes[0].set_title("(a) AttnOnly by seed, against FFNOnly")
    else:
        plotting.empty(axes[0], "AttnOnly is not in the grid")
    outcome(axes[1], data, impl)
    axes[1].set_title(f"(b) all configurations: {SPREAD}")
    figure.suptitle(data.title(labels.impl(impl)), fontsize=10.5)
    plotting.legend_below(figure, axes)
    return figure


FIGURES = (figure1, figure2, figure3, figure4)  # in the order of their numbers


def main() -> None:
    """Write each figure as plots/figure1, figure2, ..., SVG and PNG."""
    data = load()
    with plotting.styled():
        for number, draw in enumerate(FIGURES, start=1):
            plotting.save(draw(data), paths.PLOTS / f"figure{number}")


if __name__ == "__main__":
    run_command(main)
