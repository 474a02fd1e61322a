"""Study `first_steps`: the phase diagram of learning rate, warm-up and width (Q3, Q4).

The hypothesis: too large a step in the first updates throws AttnOnly onto the unigram plateau,
which it leaves late or not within the budget; the critical rate falls with width. The companion
study `first_steps_others` is a coarse grid of the same for the other configurations.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from resablate import cells, findings, labels, plotting, studytables, wording
from resablate.cells import STEP, Content, Section
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.results import ESCAPE_MARGIN, Result
from resablate.studyruns import Source, StudyArm, StudyRuns

NAME, OTHERS = "first_steps", "first_steps_others"
TITLE = "The first steps"
QUESTION = "Which learning rate, warm-up and width throw AttnOnly onto the unigram floor (Q3, Q4)?"
AT_ONCE = 0.5  # of the budget: a run off the floor by then counts as learning at once
LEARNS, LATE, FLOOR, ABOVE, DIVERGED = (
    "learning at once",
    "left the floor late",
    "at the floor",
    "not yet at the floor",
    "diverged",
)
COLORS = {
    LEARNS: "#009E73",
    LATE: "#E69F00",
    FLOOR: "#D55E00",
    ABOVE: "#BBBBBB",
    DIVERGED: "#000000",
}


def fate(run: Result, floor: float) -> str:
    """Return what became of a run by the end of its budget."""
    if run.status == "diverged":
        return DIVERGED
    left = run["escape_step"]
    if left is not None:
        return LEARNS if left <= AT_ONCE * run["steps"] else LATE
    return ABOVE if run["best_val_loss"] > floor + ESCAPE_MARGIN else FLOOR


def middle(arm: StudyArm) -> Result:
    """Return the run with the arm's median escape step; with one seed, that seed's."""
    ordered = sorted(arm.planned, key=lambda run: run["escape_step"] or math.inf)
    return ordered[(len(ordered) - 1) // 2]


def critical_rate(arms: Sequence[StudyArm], floor: float) -> float:
    """Return the lowest learning rate from which on none learns at once; infinite for none.

    A run that leaves the floor late has been thrown onto it too. Counted from the top, so that a
    rate too low to learn within the budget does not count.
    """
    critical = math.inf
    for arm in sorted(arms, key=lambda arm: arm.run.lr, reverse=True):
        if fate(middle(arm), floor) == LEARNS:
            break
        critical = arm.run.lr
    return critical


class Critical:
    """The critical rates of one configuration by width and warm-up."""

    def __init__(self, arms: Sequence[StudyArm], floor: float):
        self.widths = sorted({arm.run.n_embd for arm in arms})
        self.warmups = sorted({arm.run.warmup_steps for arm in arms})
        self.rates = {
            (width, warmup): critical_rate(
                [a for a in arms if (a.run.n_embd, a.run.warmup_steps) == (width, warmup)], floor
            )
            for width in self.widths
            for warmup in self.warmups
        }

    def by_width(self, warmup: int) -> list[float]:
        return [self.rates[width, warmup] for width in self.widths]

    def by_warmup(self, width: int) -> list[float]:
        return [self.rates[width, warmup] for warmup in self.warmups]

    @property
    def falls_with_width(self) -> bool:
        """Whether a wider model never takes a higher rate, at any warm-up, and once a lower one."""
        return _monotone([self.by_width(warmup)[::-1] for warmup in self.warmups])

    @property
    def rises_with_warmup(self) -> bool:
        """Whether a longer warm-up never lowers it, at any width, and once raises it."""
        return _monotone([self.by_warmup(width) for width in self.widths])


def _monotone(series: Sequence[Sequence[float]]) -> bool:
    """Return whether no series falls and at least one rises."""
    steps = [(a, b) for rates in series for a, b in pairwise(rates)]
    return all(a <= b for a, b in steps) and any(a < b for a, b in steps)


def _rate(rate: float) -> str:
    return f"{rate:g}" if math.isfinite(rate) else "above all tried"


def critical_section(critical: Critical) -> Section:
    """Return the critical rates, a row a width."""
    columns = {f"warmup_{warmup}": f"warm-up {warmup}" for warmup in critical.warmups}
    kind = cells.Kind("learning rate", "g")
    rows = {}
    for width in critical.widths:
        rates = zip(columns, critical.by_warmup(width), strict=True)
        contents = {
            column: cells.value(kind, rate if math.isfinite(rate) else None, text=_rate(rate))
            for column, rate in rates
        }
        rows[f"width_{width}"] = (f"AttnOnly, width {width}", contents)
    return Section("Rate from which on none learns at once", columns, rows)


def conclude(runs: StudyRuns, others: StudyRuns, critical: Critical) -> tuple[str, str]:
    """Return where the floor begins, and what of the hypothesis was not found."""
    ends = dict.fromkeys((critical.warmups[0], critical.warmups[-1]))
    where = [f"{_by_width(critical, warmup)} with {warmup} warm-up steps" for warmup in ends]
    fates = Counter(fate(run, runs.floor) for arm in runs.arms for run in arm.planned)
    found = (
        f"{wording.setting(runs.scale, runs.arms)}, the rate from which on AttnOnly does not"
        f" learn at once is {'; '.join(where)}; {fates[LEARNS]} of {fates.total()} cells learn at"
        f" once, {fates[LATE]} leave the floor late, {fates[FLOOR]} end at it."
    )
    claims = {
        "that the critical rate falls with width": critical.falls_with_width,
        "that a longer warm-up raises it": critical.rises_with_warmup,
        "that the floor can be left late": fates[LATE] > 0,
    }
    held = wording.listed(name for name, holds in claims.items() if holds)
    failed = wording.listed(name for name, holds in claims.items() if not holds)
    return found, (
        f"Of the hypothesis, what held in this grid is {held}, and what did not is {failed};"
        f" {_others(others)}; a cell is one seed, so the boundary is known to a cell at best."
    )


def _by_width(critical: Critical, warmup: int) -> str:
    rates = critical.by_width(warmup)
    if len(set(rates)) == 1:
        return f"{_rate(rates[0])} at every width"
    rates = zip(critical.widths, rates, strict=True)
    return wording.listed(f"{_rate(rate)} at width {width}" for width, rate in rates)


def _others(others: StudyRuns) -> str:
    parts = []
    for config in others.levels("config"):
        fates = [fate(run, others.floor) for a in others.select(config=config) for run in a.planned]
        left = sum(of in (LEARNS, LATE) for of in fates)
        parts.append(f"{labels.config(config)} left the floor in {left} of {len(fates)} cells")
    return wording.listed(parts)


def draw(runs: StudyRuns, others: StudyRuns) -> Figure:
    """Return the phase diagram: a panel a width, below it one a further configuration."""
    panels, coarse = _panels(runs.arms), _panels(others.arms)
    columns = max(len(panels), len(coarse))
    figure, axes = plotting.grid(2, columns, 2.9, 2.9)
    for row, of in zip(axes, (panels, coarse), strict=True):
        for ax, panel in zip(row, [*of, *[None] * (columns - len(of))], strict=True):
            if panel is None:
                ax.set_axis_off()
            else:
                _diagram(ax, *panel, runs.floor)
        row[0].set_ylabel("warm-up, steps")
    _key(figure, runs)
    figure.suptitle(
        f"{TITLE}, scale {labels.scale(runs.scale)}: when a run leaves the unigram floor (step)",
        fontsize=10.5,
    )
    return figure


def _panels(arms: Sequence[StudyArm]) -> list[tuple[str, list[StudyArm]]]:
    """Return a title and the arms for each configuration and width."""
    made: dict[str, list[StudyArm]] = {}
    for arm in sorted(arms, key=lambda arm: arm.run.n_embd):
        made.setdefault(f"{labels.config(arm.config)}, width {arm.run.n_embd}", []).append(arm)
    return list(made.items())


def _diagram(ax: Axes, title: str, arms: Sequence[StudyArm], floor: float) -> None:
    """Fill one panel: learning rate across, warm-up up, a colour and a word a cell."""
    rates = sorted({arm.run.lr for arm in arms})
    warmups = sorted({arm.run.warmup_steps for arm in arms})
    for arm in arms:
        run = middle(arm)
        of = fate(run, floor)
        x, y = rates.index(arm.run.lr), warmups.index(arm.run.warmup_steps)
        ax.add_patch(Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, facecolor=COLORS[of]))
        text = {
            LEARNS: run["escape_step"],
            LATE: run["escape_step"],
            FLOOR: "floor",
            ABOVE: "above",
        }
        ax.text(x, y, text.get(of, "div."), ha="center", va="center", fontsize=7.5, color="white")
    ax.set_title(title)
    ax.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates], fontsize=8, rotation=45)
    ax.set_yticks(range(len(warmups)), warmups, fontsize=8)
    ax.set(xlim=(-0.5, len(rates) - 0.5), ylim=(-0.5, len(warmups) - 0.5), xlabel="learning rate")


def _key(figure: Figure, runs: StudyRuns) -> None:
    """Put the colours' meanings below the panels."""
    budget = runs.arms[0].run.steps
    by = f" (by step {AT_ONCE * budget:g} of {budget})"
    texts = [name + by if name == LEARNS else name for name in COLORS]
    handles = [Patch(color=color) for color in COLORS.values()]
    figure.legend(handles, texts, loc="outside lower center", ncols=len(texts), fontsize=8.5)


def analyse(runs: StudyRuns, others: StudyRuns) -> Finding:
    """Return the study's finding, from the fine grid and the coarse one."""
    attn = [arm for arm in runs.arms if arm.config == "attn_only"]
    critical = Critical(attn, runs.floor)
    arms = [*runs.arms, *others.arms]
    section = studytables.arms_section(
        runs,
        arms,
        _label,
        more={"outcome": "Outcome"},
        contents=lambda arm: _outcome(middle(arm), runs.floor),
    )
    note = (
        f"{LEARNS.capitalize()}: off the floor by {AT_ONCE:.0%} of the budget; {FLOOR}: never off"
        f" it; {ABOVE}: never within {ESCAPE_MARGIN} nats of it. The rate in the first section is"
        " the lowest from which on no higher one learns at once."
    )
    title = f"{TITLE}: learning rate × warm-up × width"
    sections = [critical_section(critical), section]
    table = studytables.table(runs, title, sections, arms, notes=[note])
    found, not_found = conclude(runs, others, critical)
    figures = {NAME: lambda: draw(runs, others)}
    return Finding(runs, TITLE, QUESTION, found, not_found, table, figures, arms)


def _outcome(run: Result, floor: float) -> dict[str, Content]:
    return {"outcome": cells.value(STEP, run["escape_step"], 1, fate(run, floor))}


def _label(arm: StudyArm) -> str:
    run = arm.run
    return (
        f"{labels.config(arm.config)}, lr {run.lr:g}, warm-up {run.warmup_steps},"
        f" width {run.n_embd}"
    )


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    return analyse(source.study(NAME), source.study(OTHERS))


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
