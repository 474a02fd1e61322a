"""Study `gain_optimiser`: under which optimiser is a gain absorbed (Section 5.1, C8)?

AdamW's step does not change with the scale of the gradients as long as eps is small beside them;
SGD's does. The study `gain` has AdamW with the default eps, for other configurations.
"""

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from resablate import cells, findings, gains, labels, plotting, studytables, wording
from resablate.cells import LOSS, STEP, Section
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.gains import ABSORBED, BY, Ladder
from resablate.stats import paired_difference
from resablate.studyruns import Source, StudyArm, StudyRuns

NAME = "gain_optimiser"
TITLE = "Gain under other optimisers"
QUESTION = "Where exactly does the absorption of a gain hold: which optimiser, which eps (C8)?"
Ladders = Mapping[str, Mapping[str, Ladder]]  # optimiser -> kind -> its arms


def name(arm: StudyArm) -> str:
    """Return an arm's optimiser as printed."""
    if arm.run.optimiser == "sgd":
        return "SGD"
    return f"AdamW eps {arm.run.adam_eps:.0e}".replace("e-0", "e-")


def group(arms: Sequence[StudyArm]) -> dict[str, dict[str, Ladder]]:
    """Return the arms by optimiser and kind of gain; AdamW by falling eps, SGD last."""
    found: dict[str, list[StudyArm]] = {}
    order = sorted(arms, key=lambda arm: (arm.run.optimiser == "sgd", -arm.run.adam_eps))
    for arm in order:
        found.setdefault(name(arm), []).append(arm)
    return {optimiser: gains.ladders(of) for optimiser, of in found.items()}


def spread_section(of: Ladders) -> Section:
    """Return one row an optimiser and kind of gain."""
    columns = {
        "by": f"Spread over gains at step {BY}",
        "end": "at the end",
        "noise": "std over seeds at the end",
        "absorbed": f"Below {ABSORBED} from step",
    }
    rows = {}
    for optimiser, ladders in of.items():
        for kind, ladder in ladders.items():
            n, at = len(ladder.arms), ladder.absorbed_at
            key = optimiser.replace(" ", "_")
            rows[f"{key}.{kind}"] = (
                f"{optimiser}, {ladder.label}",
                {
                    "by": cells.value(LOSS, ladder.at(BY), n),
                    "end": cells.value(LOSS, ladder.end, n),
                    "noise": cells.value(LOSS, ladder.noise, n),
                    "absorbed": cells.value(STEP, at, n, "never" if at is None else None),
                },
            )
    return Section("Optimiser, kind", columns, rows)


def conclude(runs: StudyRuns, of: Ladders) -> tuple[str, str]:
    """Return the spread at the end under each optimiser, and where there is no absorption."""
    parts = []
    for kind, text in gains.KINDS.items():
        ends = [f"{o} {LOSS(of[o][kind].end)}" for o in of if kind in of[o]]
        parts += [f"for a {text} {wording.listed(ends)}"] if ends else []
    everything = [(o, ladder) for o, ladders in of.items() for ladder in ladders.values()]
    within = [f"{o} ({ladder.label})" for o, ladder in everything if ladder.absorbed_at is not None]
    never = [f"{o} ({ladder.label})" for o, ladder in everything if ladder.absorbed_at is None]
    used = wording.span((gains.value(arm.run) for arm in runs.arms), "g")
    found = (
        f"{wording.setting(runs.scale, runs.arms)}, the spread of {_config(runs)}'s mean losses"
        f" over gains of {used} is at the end, in nats, {'; '.join(parts)}."
    )
    return found, (
        f"Absorption to a spread that stays below {ABSORBED} nats was found under"
        f" {wording.listed(within)}, and not under {wording.listed(never)}."
    )


def draw(runs: StudyRuns, of: Ladders) -> Figure:
    """Return the change of the final loss by gain, a panel a kind and a line an optimiser."""
    kinds = [kind for kind in gains.KINDS if any(kind in ladders for ladders in of.values())]
    figure, axes = plotting.figure(len(kinds), 4.2, 3.8)
    looks = plotting.shades(len(of))
    for ax, kind in zip(axes, kinds, strict=True):
        ax.axhspan(-ABSORBED, ABSORBED, color=plotting.GREY, alpha=0.25, label=f"± {ABSORBED}")
        for place, (optimiser, ladders) in enumerate(of.items()):
            if kind not in ladders:
                continue
            arms = ladders[kind].arms
            losses = [arm.by_seed("final_val_loss") for arm in arms]
            plain = next(i for i, arm in enumerate(arms) if gains.value(arm.run) == 1)
            found = [paired_difference(of_gain, losses[plain]) for of_gain in losses]
            # Side by side, for two optimisers that differ in nothing would hide each other.
            at = [gains.value(arm.run) * 1.05 ** (place - (len(of) - 1) / 2) for arm in arms]
            look = {**looks[place], "marker": "osD^vP*"[place % 7], "markersize": 5, "capsize": 2}
            means = [math.nan if e.mean is None else e.mean for e in found]
            stds = [e.std or 0.0 for e in found]
            ax.errorbar(at, means, stds, label=optimiser, linewidth=1.3, **look)
        ax.set_xscale("log", base=2)
        ax.set_xticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
        ax.set(title=gains.KINDS[kind], xlabel="gain")
    axes[0].set_ylabel("change of the final loss, nats")
    what = f"{TITLE}, {_config(runs)}, scale {labels.scale(runs.scale)}: mean ± std over seeds"
    figure.suptitle(what, fontsize=10.5)
    plotting.legend_below(figure, axes)
    return figure


def analyse(runs: StudyRuns) -> Finding:
    """Return the study's finding; each arm is compared with its optimiser's gain of 1."""
    arms = runs.arms
    of = group(arms)
    plain = {name(arm): arm for arm in arms if gains.value(arm.run) == 1}
    changed = [arm for arm in runs.arms if gains.value(arm.run) != 1]
    compared = studytables.compare_all(changed, lambda arm: plain[name(arm)])
    section = studytables.arms_section(runs, arms, _label, compared, "the optimiser's gain 1")
    note = (
        "Spread over gains: the largest minus the smallest mean validation loss over the gains of a"
        " row, gain 1 included."
    )
    sections = [spread_section(of), section]
    table = studytables.table(runs, f"{TITLE} (C8)", sections, runs.arms, compared, [note])
    found, not_found = conclude(runs, of)
    figures = {NAME: lambda: draw(runs, of)}
    return Finding(runs, TITLE, QUESTION, found, not_found, table, figures, runs.arms)


def _config(runs: StudyRuns) -> str:
    return labels.config(runs.arms[0].config)


def _label(arm: StudyArm) -> str:
    run = arm.run
    kind = "" if gains.value(run) == 1 else " at run time" if run.gain != 1 else " at start"
    return f"{name(arm)}, gain {gains.value(run):g}{kind}"


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    return analyse(source.study(NAME))


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
