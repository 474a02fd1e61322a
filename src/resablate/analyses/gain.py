"""Study `gain`: is a gain on the sublayers absorbed by AdamW (Section 5.1, C8)?

A runtime multiplier on every sublayer's output, and the same factor on the output projections at
start, for AttnOnly and FFNOnly: how far apart do they leave the losses, and when?
"""

import math
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from resablate import (
    cells,
    findings,
    gains,
    labels,
    plotting,
    studyfigures,
    studytables,
    wording,
)
from resablate.cells import LOSS, RUNS, STEP, Section
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.gains import ABSORBED, BY, Ladder
from resablate.studyruns import Source, StudyArm, StudyRuns
from resablate.studytables import Comparison

NAME = "gain"
TITLE = "Gain at run time and at start"
QUESTION = "Does AdamW absorb a gain on the sublayers, at run time or at start (C8)?"
COLORS = {"runtime": "#0072B2", "start": "#D55E00"}
Ladders = Mapping[str, Mapping[str, Ladder]]  # configuration -> kind -> its arms


def spread_section(of: Ladders, compared: Mapping[str, Comparison]) -> Section:
    """Return one row a configuration and kind of gain."""
    columns = {
        "by": f"Spread over gains at step {BY}",
        "end": "at the end",
        "noise": "std over seeds at the end",
        "absorbed": f"Below {ABSORBED} from step",
        "differ": "Gains unlike 1 (Holm)",
    }
    rows = {}
    for config, ladders in of.items():
        for kind, ladder in ladders.items():
            n = len(ladder.arms)
            differ = sum(_differs(arm, compared) for arm in ladder.arms)
            at = ladder.absorbed_at
            rows[f"{config}.{kind}"] = (
                f"{labels.config(config)}, {ladder.label}",
                {
                    "by": cells.value(LOSS, ladder.at(BY), n),
                    "end": cells.value(LOSS, ladder.end, n),
                    "noise": cells.value(LOSS, ladder.noise, n),
                    "absorbed": cells.value(STEP, at, n, "never" if at is None else None),
                    "differ": cells.value(RUNS, differ, n, f"{differ} of {n - 1}"),
                },
            )
    return Section("Configuration, kind", columns, rows)


def _differs(arm: StudyArm, compared: Mapping[str, Comparison]) -> bool:
    return arm.name in compared and wording.significant(compared[arm.name].p_holm)


def conclude(runs: StudyRuns, of: Ladders) -> tuple[str, str]:
    """Return the spreads over gains, and where absorption was not found."""
    parts, absorbed, never = [], [], []
    for config, ladders in of.items():
        for ladder in ladders.values():
            name = f"{labels.config(config)} under a {ladder.label}"
            if ladder.end is None:
                parts.append(f"unknown for {name}, a gain of which finished no run")
                continue
            parts.append(f"{ladder.at(BY):.3f} then {ladder.end:.3f} for {name}")
            at = ladder.absorbed_at
            if at is None:
                never.append(name)
            else:
                absorbed.append(f"{name} (from step {at})")
    all_gains = wording.span((gains.value(arm.run) for arm in runs.arms), "g")
    attn = of["attn_only"]["runtime"].best  # the paper's 1.54 at g = 2
    best = (
        f"; the best runtime gain of AttnOnly is {gains.value(attn.run):g}, with"
        f" {wording.loss(attn.estimate('best_val_loss'))}"
        if attn
        else ""
    )
    found = (
        f"{wording.setting(runs.scale, runs.arms)}, the spread of the mean validation losses over"
        f" gains of {all_gains} is, in nats at step {BY} and at the end,"
        f" {wording.listed(parts)}{best}."
    )
    return found, (
        f"A spread that stays below the {ABSORBED} nats which the paper reports by step {BY} was"
        f" found for {wording.listed(absorbed)}, and not for {wording.listed(never)}."
    )


def draw(runs: StudyRuns, of: Ladders) -> Figure:
    """Return a row a configuration: curves by gain for each kind, and the spread over time."""
    figure, axes = plotting.grid(len(of), 3, 3.5, 3.1)
    for row, (config, ladders) in zip(axes, of.items(), strict=True):
        for ax, ladder in zip(row, ladders.values(), strict=False):
            lines = {
                f"gain {gains.value(arm.run):g}": curve
                for arm, curve in zip(ladder.arms, ladder.curves, strict=True)
            }
            studyfigures.curves(ax, lines, plotting.shades(len(lines)))
            ax.axhline(runs.floor, color=plotting.GREY, linestyle=":", linewidth=1, zorder=0)
            ax.set_title(f"{labels.config(config)}, {ladder.label}")
        row[0].set_ylabel("validation loss, nats per token")
        _spread(row[2], ladders, config)
    figure.suptitle(f"{TITLE}, scale {labels.scale(runs.scale)}, mean of seeds", fontsize=10.5)
    plotting.legend_below(figure, [ax for row in axes for ax in row])
    return figure


def _spread(ax: Axes, ladders: Mapping[str, Ladder], config: str) -> None:
    for kind, ladder in ladders.items():
        steps, spread = ladder.spread
        shown = [gap or math.nan for gap in spread]  # a log axis has no place for zero
        ax.plot(steps, shown, color=COLORS[kind], linewidth=1.5, label=f"spread, {ladder.label}")
    ax.axhline(ABSORBED, color=plotting.GREY, linestyle=":", linewidth=1, label=f"{ABSORBED} nats")
    ax.set(yscale="log", ylim=(ABSORBED / 10, 2))
    ax.set(xlabel="step", title=f"{labels.config(config)}: spread over gains")


def analyse(runs: StudyRuns) -> Finding:
    """Return the study's finding; each arm is compared with its configuration without a gain."""
    of = {c: gains.ladders(runs.select(config=c)) for c in runs.levels("config")}
    plain = {arm.config: arm for arm in runs.arms if gains.value(arm.run) == 1}
    changed = [arm for arm in runs.arms if gains.value(arm.run) != 1]
    compared = studytables.compare_all(changed, lambda arm: plain[arm.config])
    section = studytables.arms_section(runs, runs.arms, label, compared, "gain 1")
    note = (
        "Spread over gains: the largest minus the smallest mean validation loss over the gains of a"
        " row, gain 1 included, at one evaluation. A runtime gain multiplies both sublayers'"
        " outputs throughout; a gain at start multiplies their output projections once."
    )
    sections = [spread_section(of, compared), section]
    table = studytables.table(runs, f"{TITLE} (C8)", sections, runs.arms, compared, [note])
    found, not_found = conclude(runs, of)
    figures = {NAME: lambda: draw(runs, of)}
    return Finding(runs, TITLE, QUESTION, found, not_found, table, figures, runs.arms)


def label(arm: StudyArm) -> str:
    """Return an arm's configuration and gain."""
    run = arm.run
    if gains.value(run) == 1:
        return f"{labels.config(arm.config)}, gain 1"
    kind = "runtime gain" if run.gain != 1 else "gain at start"
    return f"{labels.config(arm.config)}, {kind} {gains.value(run):g}"


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    return analyse(source.study(NAME))


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
