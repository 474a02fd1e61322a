"""Study `strength`: both skips as numbers between 0 and 1, and where the transition lies."""

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from resablate import (
    cells,
    findings,
    labels,
    plotting,
    studyfigures,
    studytables,
    wording,
)
from resablate.cells import Section
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.studyruns import Source, StudyArm, StudyRuns

NAME = "strength"
TITLE = "Skip strength"
QUESTION = "How weak may each skip be before the model stays on the unigram floor?"
SKIPS = {"attn_skip": "attention skip", "ffn_skip": "FFN skip"}


def strengths(arms: Sequence[StudyArm], skip: str) -> list[float]:
    """Return the strengths of a skip among the arms, ascending."""
    return sorted({getattr(arm.run, skip) for arm in arms})


def threshold(arms: Sequence[StudyArm], skip: str) -> float:
    """Return the weakest skip from which on every arm learns with every seed; infinite for none."""
    weakest = math.inf
    for arm in sorted(arms, key=lambda arm: getattr(arm.run, skip), reverse=True):
        if not wording.learns(arm):
            break
        weakest = getattr(arm.run, skip)
    return weakest


def thresholds(arms: Sequence[StudyArm], skip: str) -> dict[float, float]:
    """Return the other skip's strength -> the threshold of this one."""
    (other,) = SKIPS.keys() - {skip}
    return {
        held: threshold([arm for arm in arms if getattr(arm.run, other) == held], skip)
        for held in strengths(arms, other)
    }


def _strength(value: float, none: str = "none") -> str:
    return f"{value:g}" if math.isfinite(value) else none


def thresholds_section(arms: Sequence[StudyArm], skip: str) -> Section:
    """Return the thresholds of a skip, a column a strength of the other."""
    (other,) = SKIPS.keys() - {skip}
    of = thresholds(arms, skip)
    kind = cells.Kind("skip strength", "g")
    columns = {f"{other}_{held:g}": f"{SKIPS[other]} {held:g}" for held in of}
    contents = {
        column: cells.value(kind, value if math.isfinite(value) else None, text=_strength(value))
        for column, value in zip(columns, of.values(), strict=True)
    }
    rows = {f"threshold.{skip}": (f"{SKIPS[skip]}", contents)}
    return Section("Weakest from which on every seed learns", columns, rows)


def conclude(runs: StudyRuns) -> tuple[str, str]:
    """Return the thresholds of both skips with the other removed and whole, and what stays."""
    parts = []
    for skip, name in SKIPS.items():
        (other,) = SKIPS.keys() - {skip}
        of = thresholds(runs.arms, skip)
        ends = [
            f"{_strength(of[held], 'none of those tried')} with {SKIPS[other]} {held:g}"
            for held in (min(of), max(of))
        ]
        parts.append(f"of the {name} {wording.listed(ends)}")
    learned = sum(wording.learns(arm) for arm in runs.arms)
    stayed = [arm for arm in runs.arms if wording.collapsed(arm)]
    mixed = len(runs.arms) - learned - len(stayed)
    setting = wording.setting(runs.scale, runs.arms)
    found = (
        f"{setting}, the weakest strength from which on every seed learns is {'; '.join(parts)};"
        f" {learned} of {len(runs.arms)} pairs of strengths learn with every seed."
    )
    return found, (
        f"No seed left the floor with {_pairs(stayed) or 'none of the pairs'}; pairs with which"
        f" some seeds did and some did not: {mixed}; where between two strengths tried the"
        " transition lies was not resolved."
    )


def _pairs(arms: Sequence[StudyArm]) -> str:
    """Name pairs of strengths, attention skips that share their FFN skips together."""
    together: dict[tuple[float, ...], list[float]] = {}
    for held in strengths(arms, "attn_skip"):
        paired = strengths([arm for arm in arms if arm.run.attn_skip == held], "ffn_skip")
        together.setdefault(tuple(paired), []).append(held)
    return ", nor with ".join(
        f"attention skip {_numbers(attn)} at FFN skip {_numbers(ffn)}"
        for ffn, attn in together.items()
        if ffn
    )


def _numbers(values: Sequence[float]) -> str:
    return wording.listed(f"{value:g}" for value in values)


def draw(runs: StudyRuns) -> Figure:
    """Return the heat map of mean best losses, and beside it how many seeds left the floor."""
    figure, axes = plotting.figure(2, 5.2, 4.2)
    across, up = strengths(runs.arms, "ffn_skip"), strengths(runs.arms, "attn_skip")
    by = {(arm.run.attn_skip, arm.run.ffn_skip): arm for arm in runs.arms}
    means = [[by[y, x].estimate("best_val_loss").mean for x in across] for y in up]
    left = [[_share_left(by[y, x]) for x in across] for y in up]
    known = [loss for row in means for loss in row if loss is not None]
    panels = {
        "mean best validation loss, nats per token": (means, (min(known), max(known)), ".3f"),
        "share of seeds off the unigram floor": (left, (0.0, 1.0), ".0%"),
    }
    for ax, (title, (values, limits, spec)) in zip(axes, panels.items(), strict=True):
        names = [[f"{v:g}" for v in axis] for axis in (across, up)]
        image = studyfigures.heat_map(ax, values, *names, limits, spec)
        figure.colorbar(image, ax=ax, shrink=0.8)
        ax.set(title=title, xlabel=SKIPS["ffn_skip"], ylabel=SKIPS["attn_skip"])
    figure.suptitle(f"{TITLE}, scale {labels.scale(runs.scale)}", fontsize=10.5)
    return figure


def _share_left(arm: StudyArm) -> float | None:
    k, n = wording.escaped(arm)
    return k / n if n else None


def analyse(runs: StudyRuns) -> Finding:
    """Return the study's finding; each arm is compared with both skips whole."""
    (whole,) = (arm for arm in runs.arms if arm.run.attn_skip == arm.run.ffn_skip == 1)
    others = [arm for arm in runs.arms if arm is not whole]
    compared = studytables.compare_all(others, lambda arm: whole)
    sections = [thresholds_section(runs.arms, skip) for skip in SKIPS]
    sections.append(studytables.arms_section(runs, runs.arms, _label, compared, "both skips 1"))
    table = studytables.table(runs, TITLE, sections, runs.arms, compared)
    found, not_found = conclude(runs)
    figures = {NAME: lambda: draw(runs)}
    return Finding(runs, TITLE, QUESTION, found, not_found, table, figures, runs.arms)


def _label(arm: StudyArm) -> str:
    return f"attention {arm.run.attn_skip:g}, FFN {arm.run.ffn_skip:g}"


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    return analyse(source.study(NAME))


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
