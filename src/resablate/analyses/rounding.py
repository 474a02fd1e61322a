"""Studies `seeds` and `rounding`: is the paper's Phase 1 and 2 scatter rounding alone (Q3)?

At two points, the base and one near the boundary of what learns: eight seeds against eight runs of
one seed that each start with another weight moved by one ulp. The outcome at the boundary is the
step at which a run leaves the unigram floor, censored at the budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats as scipy_stats

from resablate import cells, findings, labels, plotting, reported, studytables, survival, wording
from resablate.cells import LOSS, RATIO, RUNS, SHARE, SIGNIFICANCE, STEP, Content, Section
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.results import Result
from resablate.stats import Estimate, estimate, ratio
from resablate.studyruns import Source, StudyArm, StudyRuns
from resablate.survival import Survival

NAME, SEEDS = "rounding", "seeds"
TITLE = "Rounding against seeds"
QUESTION = "Is the scatter of the paper's Phases 1 and 2 what rounding alone makes (Q3)?"
# The paper's AttnOnly in the registry: Phase 1 is seed 1337 three times, Phase 2 three seeds. Its
# Full Residual is that of Table 3, its floor that of the same characters.
PHASES, FULL = ("P1", "P2"), "T3.full.best_val_loss"
KINDS = {"seeds": "seeds", "ulps": "one-ulp perturbations"}
LOOKS = {
    "seeds": {"color": "#0072B2", "linestyle": "-"},
    "ulps": {"color": "#D55E00", "linestyle": (0, (4, 1.5))},
}


@dataclass(frozen=True)
class Group:
    """Runs at one point that differ in their seed, or in one weight's last bit."""

    point: str
    kind: str
    arms: Sequence[StudyArm]

    @property
    def runs(self) -> list[Result]:
        return [run for arm in self.arms for run in arm.planned]

    @property
    def losses(self) -> list[float]:
        return [loss for arm in self.arms for loss in arm.by_seed("best_val_loss").values()]

    @property
    def left(self) -> int:
        return sum(run["escape_step"] is not None for run in self.runs)

    @property
    def survival(self) -> Survival:
        return survival.kaplan_meier(*survival.escapes(self.runs))


@dataclass(frozen=True)
class Point:
    """Both groups at one point, and how their spreads compare."""

    name: str
    seeds: Group
    ulps: Group
    way: float | None  # nats from the floor to Full Residual

    @property
    def spreads(self) -> tuple[float | None, float | None]:
        """The sample standard deviations of the best losses over seeds and over perturbations."""
        return estimate(self.seeds.losses).std, estimate(self.ulps.losses).std

    @property
    def shares(self) -> tuple[float | None, float | None]:
        """The same in percent of the way from the floor to Full Residual."""
        return tuple(ratio(None if s is None else 100 * s, self.way) for s in self.spreads)

    @property
    def spread_p(self) -> float | None:
        """Brown and Forsythe's p that both spread alike; None without any spread, or too few."""
        if None in self.spreads or not any(self.spreads):
            return None
        both = (self.seeds.losses, self.ulps.losses)
        return float(scipy_stats.levene(*both, center="median").pvalue)

    @property
    def leaving_p(self) -> float | None:
        return survival.logrank(self.seeds.runs, self.ulps.runs)


def points(seeds: StudyRuns, rounding: StudyRuns, full: StudyArm) -> list[Point]:
    """Return the points that both studies have."""
    mean = full.estimate("best_val_loss").mean
    way = None if mean is None else rounding.floor - mean
    return [
        Point(
            name,
            Group(name, "seeds", seeds.select(point=name)),
            Group(name, "ulps", rounding.select(point=name)),
            way,
        )
        for name in rounding.levels("point")
    ]


def groups_section(of: Sequence[Point]) -> Section:
    """Return one row a point and kind."""
    columns = {
        "best_val_loss": "Best val ± std",
        "lowest": "Lowest",
        "highest": "Highest",
        "n": "n",
        "left": "Left the floor",
        "median": "Median step off the floor",
        "on_floor": "Share on it at the end [95% interval]",
    }
    rows = {}
    for group in (group for point in of for group in (point.seeds, point.ulps)):
        losses, curve, n = group.losses, group.survival, len(group.runs)
        end = Estimate(
            n, 100 * curve.share[-1], None, _percent(curve.lo[-1]), _percent(curve.hi[-1])
        )
        rows[f"{group.point}.{group.kind}"] = (
            f"{labels.level(group.point)}, {KINDS[group.kind]}",
            {
                "best_val_loss": Content(LOSS, estimate(losses), "spread"),
                "lowest": cells.value(LOSS, min(losses, default=None), len(losses)),
                "highest": cells.value(LOSS, max(losses, default=None), len(losses)),
                "n": cells.value(RUNS, len(losses), n),
                "left": cells.value(RUNS, group.left, n, f"{group.left} of {n}"),
                "median": cells.value(STEP, curve.median, n),
                "on_floor": Content(SHARE, end, "both"),
            },
        )
    return Section("Point, what differs", columns, rows)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def spreads_section(of: Sequence[Point]) -> Section:
    """Return one row a point: perturbations' spread against the seeds'."""
    columns = {
        "ratio": "std ulps / std seeds",
        "spread_p": "p of equal spread",
        "leaving_p": "p of leaving alike",
        "seeds": "std seeds / (floor − Full)",
        "ulps": "std ulps / (floor − Full)",
    }
    rows = {}
    for point in of:
        n = len(point.ulps.losses)
        over_seeds, over_ulps = point.spreads
        shares = point.shares
        rows[f"{point.name}.spread"] = (
            labels.level(point.name),
            {
                "ratio": cells.value(RATIO, ratio(over_ulps, over_seeds), n),
                "spread_p": cells.value(SIGNIFICANCE, point.spread_p, n),
                "leaving_p": cells.value(SIGNIFICANCE, point.leaving_p, n),
                "seeds": cells.value(SHARE, shares[0], len(point.seeds.losses)),
                "ulps": cells.value(SHARE, shares[1], n),
            },
        )
    return Section("Spread", columns, rows)


def scatter(floor: float) -> list[float]:
    """Return the paper's Phase 1 and 2 scatter in percent of its way from the floor to Full."""
    registry = reported.load()
    return [100 * registry[name].spread / (floor - registry.mean(FULL)) for name in PHASES]


def conclude(runs: StudyRuns, of: Sequence[Point]) -> tuple[str, str]:
    """Return both spreads at each point, and which of the paper's they reach."""
    parts = []
    for point in of:
        seeds, ulps = point.seeds, point.ulps
        parts.append(
            f"at the {labels.level(point.name)}, {len(seeds.losses)} seeds end at"
            f" {wording.loss(estimate(seeds.losses))} and {len(ulps.losses)} one-ulp perturbations"
            f" of one of them at {wording.loss(estimate(ulps.losses))} (equal spread:"
            f" {wording.p_value(point.spread_p)}), {seeds.left} of {len(seeds.runs)} and"
            f" {ulps.left} of {len(ulps.runs)} off the floor"
        )
    arms = [arm for point in of for group in (point.seeds, point.ulps) for arm in group.arms]
    found = f"{wording.setting(runs.scale, arms)}, {'; '.join(parts)}."
    phase1, phase2 = scatter(runs.floor)
    one_ulp = _reached(of, 1, phase1)
    seeds = _reached(of, 0, phase2)
    return found, (
        "In percent of the way from the floor to Full Residual, rounding alone reaches the paper's"
        f" scatter at one seed (Phase 1, {phase1:.1f}%) {one_ulp}, and seeds reach that of its"
        f" Phase 2 ({phase2:.0f}%) {seeds}; the paper's own size and hardware were not run."
    )


def _reached(of: Sequence[Point], which: int, limit: float) -> str:
    """Say at which points a spread is at least the limit, and how large it is at each."""
    shares = {point.name: point.shares[which] for point in of}
    known = {name: share for name, share in shares.items() if share is not None}
    there = [f"the {labels.level(name)}" for name, share in known.items() if share >= limit]
    sizes = ", ".join(f"{labels.level(name)} {share:.1f}%" for name, share in known.items())
    return f"at {wording.listed(there)} ({sizes})" if there else f"at no point ({sizes})"


def draw(runs: StudyRuns, of: Sequence[Point]) -> Figure:
    """Return a row a point: the curves, survival on the floor, and the outcomes."""
    figure, axes = plotting.grid(len(of), 3, 3.5, 3.1)
    for row, point in zip(axes, of, strict=True):
        _curves(row[0], point, runs.floor)
        _survival(row[1], point)
        _outcomes(row[2], point, runs.floor)
        row[0].set_title(f"{labels.level(point.name)}: validation loss")
        row[1].set_title("share of runs still on the floor")
        row[2].set_title("best loss")
    title = f"{TITLE}, AttnOnly, scale {labels.scale(runs.scale)}"
    figure.suptitle(f"{title}; bands: 95%, Greenwood", fontsize=10.5)
    plotting.legend_below(figure, [ax for row in axes for ax in row])
    return figure


def _curves(ax: Axes, point: Point, floor: float) -> None:
    for group in (point.seeds, point.ulps):
        for arm in group.arms:
            for curve in arm.curves.values():
                look = LOOKS[group.kind]
                ax.plot(curve["step"], curve["val_loss"], linewidth=0.8, alpha=0.7, **look)
    _floor(ax, floor)
    ax.set(xlabel="step", ylabel="nats per token")


def _survival(ax: Axes, point: Point) -> None:
    for group in (point.seeds, point.ulps):
        curve, look = group.survival, LOOKS[group.kind]
        ax.step(
            curve.steps, curve.share, where="post", linewidth=1.6, label=KINDS[group.kind], **look
        )
        lo = [
            1.0 if p is None and s == 1 else p or 0.0
            for p, s in zip(curve.lo, curve.share, strict=True)
        ]
        hi = [s if p is None else p for p, s in zip(curve.hi, curve.share, strict=True)]
        ax.fill_between(
            curve.steps, lo, hi, step="post", color=look["color"], alpha=0.15, linewidth=0
        )
    budget = point.seeds.arms[0].run.steps
    ax.set(xlabel="step", xlim=(0, budget), ylim=(-0.03, 1.05))


def _outcomes(ax: Axes, point: Point, floor: float) -> None:
    for x, group in enumerate((point.seeds, point.ulps)):
        losses = group.losses
        at = plotting.beside(x, len(losses), 0.5)
        ax.plot(at, losses, "o", color=LOOKS[group.kind]["color"], markersize=4.5)
    _floor(ax, floor)
    plotting.categories(ax, [KINDS["seeds"], "one-ulp\nperturbations"])


def _floor(ax: Axes, floor: float) -> None:
    label = f"unigram floor {floor:.3f}"
    ax.axhline(floor, color=plotting.GREY, linestyle=":", linewidth=1.2, label=label, zorder=0)


def analyse(seeds: StudyRuns, runs: StudyRuns, full: StudyArm) -> Finding:
    """Return the finding of both studies together."""
    of = points(seeds, runs, full)
    arms = [*seeds.arms, *runs.arms]
    printed = [reported.load()[name].printed for name in (*PHASES, FULL)]
    sections = [groups_section(of), spreads_section(of)]
    sections.append(studytables.arms_section(runs, arms, _label))
    notes = [
        "Equal spread: Brown and Forsythe's test of the best losses; leaving alike: log-rank test"
        " of the steps off the floor. Shares on the floor are Kaplan-Meier's, runs that never left"
        " being censored at the budget, with Greenwood's interval on the log(-log) scale.",
        f"Full is that of the root pipeline, {wording.loss(full.estimate('best_val_loss'))}."
        f" The paper's AttnOnly: Phase 1 {printed[0]}; Phase 2 {printed[1]}; Full {printed[2]}.",
    ]
    table = studytables.table(runs, TITLE, sections, arms, notes=notes)
    found, not_found = conclude(runs, of)
    figures = {NAME: lambda: draw(runs, of)}
    return Finding(runs, TITLE, QUESTION, found, not_found, table, figures, arms)


def _label(arm: StudyArm) -> str:
    name = labels.level(arm.levels["point"])
    return f"{name}, ulp {arm.run.perturbation}" if arm.run.perturbation else f"{name}, all seeds"


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    seeds, runs = source.study(SEEDS), source.study(NAME)  # as in the table of runs
    (full,) = source.main_arms(runs.scale, runs.arms[0].impl, ["full"])
    return analyse(seeds, runs, full)


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
