"""Study `mechanism`: starved gradients, rank collapse and routing in the root's runs (C3, C5, Q2).

No runs of its own: the root pipeline's curves at `tiny`, both implementations, hold the
diagnostics at the start and through training.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.figure import Figure

from resablate import (
    declared,
    findings,
    labels,
    plotting,
    results,
    studyfigures,
    studyruns,
    studytables,
    wording,
)
from resablate.cells import NORM, SCORE, SHARE, Content, Section
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.results import Result
from resablate.stats import Estimate, estimate
from resablate.studyruns import Source, StudyArm, StudyRuns

NAME, SCALE = "mechanism", "tiny"
TITLE = "Mechanism: gradients, rank and routing"
QUESTION = "Do starved gradients, rank collapse or routing tell which model learns (C3, C5, Q2)?"
STARVED = 0.01  # of Full Residual's block-0 gradient norm at the end
SELF = 0.9  # mass on itself from which a layer would count as routing to itself
MATRICES = ("q", "k", "v", "proj", "up", "down")


def at(arm: StudyArm, column: str, which: int) -> Estimate:
    """Return a curve column's first (0) or last (-1) measured value over the finished runs."""
    values = []
    for curve in arm.finished_curves:
        measured = [v for v in curve.get(column, []) if math.isfinite(v)]
        values += measured[which:][:1]
    return estimate(values)


def self_mass(arm: StudyArm, which: int) -> Estimate:
    """Return the attention mass on itself, averaged over layers."""
    layers = [at(arm, f"attention_self_{layer}", which) for layer in range(arm.run.n_layer)]
    known = [layer.mean for layer in layers if layer.mean is not None]
    return (
        Estimate(layers[0].n, sum(known) / len(known), None, None, None) if known else estimate([])
    )


def largest_self_mass(arm: StudyArm) -> float | None:
    """Return the attention mass on itself of the layer that has most of it at the end."""
    layers = (at(arm, f"attention_self_{layer}", -1).mean for layer in range(arm.run.n_layer))
    return max((mass for mass in layers if mass is not None), default=None)


def _last_cosine(arm: StudyArm, which: int) -> Estimate:
    return at(arm, f"token_cosine_{arm.run.n_layer}", which)


COLUMNS = {
    "cosine_start": "Token cosine, last layer, start",
    "cosine_end": "cosine, end",
    "rank_start": "Effective rank, last layer, start",
    "rank_end": "rank, end",
    "grad_start": "Block-0 gradient norm, start",
    "grad_end": "norm, end",
    "grad_q": "its Q, end",
    "grad_k": "its K, end",
    "grad_v": "its V, end",
    "self_start": "αtt, mean of layers, start",
    "self_end": "αtt, end",
    "update_ratio": "Update / parameter RMS, end",
    "eps_share": "Share under 10 eps, end",
    "variance": "Least LN var / eps, end",
}


def contents(arm: StudyArm) -> dict[str, Content]:
    """Return an arm's cells; what its curves do not hold is a dash."""
    last = arm.run.n_layer
    share = at(arm, "adam_eps_share", -1).scaled(100.0)
    norm = partial(at, arm)
    return {
        "cosine_start": Content(SCORE, _last_cosine(arm, 0)),
        "cosine_end": Content(SCORE, _last_cosine(arm, -1)),
        "rank_start": Content(NORM, norm(f"effective_rank_{last}", 0)),
        "rank_end": Content(NORM, norm(f"effective_rank_{last}", -1)),
        "grad_start": Content(NORM, norm("grad_norm_block0", 0)),
        "grad_end": Content(NORM, norm("grad_norm_block0", -1)),
        **{f"grad_{m}": Content(NORM, norm(f"grad_norm_block0_{m}", -1)) for m in "qkv"},
        "self_start": Content(SCORE, self_mass(arm, 0)),
        "self_end": Content(SCORE, self_mass(arm, -1)),
        "update_ratio": Content(NORM, norm("update_ratio", -1)),
        "eps_share": Content(SHARE, share),
        "variance": Content(NORM, norm("norm_var_over_eps", -1)),
    }


def starved(arm: StudyArm, full: StudyArm) -> list[tuple[Result, bool]]:
    """Return whether each finished run's block-0 gradient ends far below Full Residual's."""
    limit = at(full, "grad_norm_block0", -1).mean
    if limit is None:
        return []
    found = []
    for run in arm.finished:
        norm = arm.curves[run.key.seed]["grad_norm_block0"][-1]
        found.append((run, norm < STARVED * limit))
    return found


def conclude(runs: StudyRuns) -> tuple[str, str]:
    """Return what goes with learning, and which of the paper's claims were not found."""
    full = {arm.impl: arm for arm in runs.arms if arm.config == "full"}
    partial_runs = [
        one for arm in runs.arms if arm.config != "full" for one in starved(arm, full[arm.impl])
    ]
    n = len(partial_runs)
    hungry = sum(is_starved for _, is_starved in partial_runs)
    agree = sum(is_starved == (run["escape_step"] is None) for run, is_starved in partial_runs)
    first = runs.levels("impl")[0]
    cosines = wording.listed(
        f"{labels.config(arm.config)} {SCORE(_last_cosine(arm, 0).mean)}"
        for arm in runs.select(impl=first)
    )
    found = (
        f"{wording.setting(runs.scale, runs.arms)}, the block-0 gradient of {hungry} of {n} runs"
        f" with a skip removed ends below {STARVED:.0%} of Full Residual's, and starving goes with"
        f" staying on the floor in {agree} of {n}; at the start the tokens' mean cosine in the last"
        f" layer is, in {labels.impl(first)}, {cosines}."
    )
    universal = "was found" if hungry == n else "was not found"
    predicts = "does tell" if agree == n else f"tells in all but {n - agree} runs"
    return found, (
        f"Starvation in every model with a skip removed (C3) {universal} and it {predicts} which of"
        f" them stay on the floor; {_routing(runs)}."
    )


def _routing(runs: StudyRuns) -> str:
    parts = []
    for arm in runs.select(config="attn_only"):
        mass = largest_self_mass(arm)
        if mass is None:
            return "the attention mass on itself (C5) was not measured"
        verdict = "is found" if mass >= SELF else "is not found"
        parts.append(f"{verdict} in AttnOnly of {labels.impl(arm.impl)} (at most {mass:.2f})")
    return f"a layer with an attention mass on itself of about 1 (C5) {wording.listed(parts)}"


def _per_layer(runs: StudyRuns, rows: Sequence[tuple[str, str]], title: str) -> Figure:
    """Return a panel a configuration and quantity, a line a layer from dark to light."""
    arms = runs.select(impl=runs.levels("impl")[0])
    figure, axes = plotting.grid(len(rows), len(arms), 2.6, 2.7)
    for row, (column, name) in zip(axes, rows, strict=True):
        for ax, arm in zip(row, arms, strict=True):
            layers = range(arm.run.n_layer + (column != "attention_self"))
            lines = {
                f"layer {layer}": studyruns.mean_column(arm, f"{column}_{layer}")
                for layer in layers
            }
            studyfigures.curves(ax, lines, plotting.shades(len(lines)))
            ax.set_title(labels.config(arm.config))
        row[0].set_ylabel(name)
        _share_y(row)
    return _titled(runs, figure, axes, title)


def _share_y(row: Sequence[object]) -> None:
    low = min(ax.get_ylim()[0] for ax in row)
    high = max(ax.get_ylim()[1] for ax in row)
    for ax in row:
        ax.set_ylim(low, high)


def _titled(runs: StudyRuns, figure: Figure, axes: Sequence[Sequence], title: str) -> Figure:
    impl = labels.impl(runs.levels("impl")[0])
    figure.suptitle(
        f"{title}, {impl}, scale {labels.scale(runs.scale)}, mean of seeds", fontsize=10.5
    )
    plotting.legend_below(figure, [ax for row in axes for ax in row], 7)
    return figure


def draw_rank(runs: StudyRuns) -> Figure:
    """Return token cosine and effective rank per layer through training."""
    rows = [("token_cosine", "mean cosine of tokens"), ("effective_rank", "effective rank")]
    return _per_layer(runs, rows, "Rank collapse")


def draw_routing(runs: StudyRuns) -> Figure:
    """Return the attention mass on itself per layer through training."""
    return _per_layer(runs, [("attention_self", "αtt, mass on itself")], "Routing")


def draw_gradients(runs: StudyRuns) -> Figure:
    """Return block 0's gradient norms, a line a matrix."""
    arms = runs.select(impl=runs.levels("impl")[0])
    figure, axes = plotting.grid(1, len(arms), 2.6, 3.3)
    colors = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#000000")
    styles = ("-", "--", "-", "--", "-", ":")
    looks = [{"color": c, "linestyle": s} for c, s in zip(colors, styles, strict=True)]
    for ax, arm in zip(axes[0], arms, strict=True):
        lines = {m: studyruns.mean_column(arm, f"grad_norm_block0_{m}") for m in MATRICES}
        studyfigures.curves(ax, lines, looks, log=True)
        ax.set_title(labels.config(arm.config))
    axes[0][0].set_ylabel("gradient norm, block 0")
    _share_y(axes[0])
    return _titled(runs, figure, axes, "Gradients of block 0 by matrix")


def draw_optimiser(runs: StudyRuns) -> Figure:
    """Return how AdamW acts and what LayerNorm divides by, a line a configuration."""
    panels = {
        "update_ratio": "update / parameter RMS",
        "adam_eps_share": "share with sqrt(v) < 10 eps",
        "norm_var_over_eps": "least LN variance / eps",
    }
    arms = runs.select(impl=runs.levels("impl")[0])
    configs = [arm.config for arm in arms]
    figure, axes = plotting.grid(1, len(panels), 3.3, 3.3)
    for ax, (column, name) in zip(axes[0], panels.items(), strict=True):
        lines = {labels.config(arm.config): studyruns.mean_column(arm, column) for arm in arms}
        looks = [plotting.line(config, configs) | {"marker": ""} for config in configs]
        studyfigures.curves(ax, lines, looks, log=column != "adam_eps_share")
        ax.set_title(name)
    return _titled(runs, figure, axes, "AdamW and LayerNorm")


DRAWN: dict[str, Callable[[StudyRuns], Figure]] = {
    NAME: draw_rank,
    f"{NAME}_gradients": draw_gradients,
    f"{NAME}_routing": draw_routing,
    f"{NAME}_optimiser": draw_optimiser,
}


def load(source: Source) -> StudyRuns:
    """Return the root pipeline's runs at this study's scale."""
    root = declared.load()
    data = results.read_floor(root.scales[SCALE].dataset)
    grid = root.grid
    impls = sorted(grid.impl, key=lambda impl: impl != "residualgpt")  # the paper's primary first
    arms = [arm for impl in impls for arm in source.main_arms(SCALE, impl, grid.config)]
    axes = {"impl": impls, "config": grid.config}
    return StudyRuns(NAME, SCALE, axes, grid.seed, arms, data)


def analyse(runs: StudyRuns) -> Finding:
    """Return the study's finding."""
    measured = {studytables.row_key(NAME, arm): (_label(arm), contents(arm)) for arm in runs.arms}
    sections = [
        Section("Arm", COLUMNS, measured),
        studytables.arms_section(runs, runs.arms, _label),
    ]
    note = (
        "Start is before the first update, end after the last; means over seeds. αtt is a token's"
        " mean attention weight on itself. Gradient norms are before clipping."
    )
    table = studytables.table(runs, TITLE, sections, runs.arms, notes=[note])
    found, not_found = conclude(runs)
    figures = {name: partial(draw, runs) for name, draw in DRAWN.items()}
    return Finding(runs, TITLE, QUESTION, found, not_found, table, figures, runs.arms)


def _label(arm: StudyArm) -> str:
    return f"{labels.impl(arm.impl)}, {labels.config(arm.config)}"


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    return analyse(load(source))


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
