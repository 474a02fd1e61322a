"""The table that every study has: an arm a row, compared with a reference arm."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from resablate import cells, tables
from resablate.arms import Arm, Gap, compare
from resablate.cells import COUNT, DIFFERENCE, LOSS, RUNS, SIGNIFICANCE, STEP, Content, Section
from resablate.stats import holm, t_test
from resablate.studyruns import StudyArm, StudyRuns

COLUMNS = {
    "best_val_loss": "Best val ± std",
    "interval": tables.LEVEL,
    "n": "n",
    "final_val_loss": "Final val",
    "to_floor": "Best − floor",
    "escape_step": "Median step off the floor",
    "difference": "Difference to {reference} [" + tables.LEVEL + "]",
    "p": "p",
    "p_holm": "p (Holm)",
    "n_params": "Parameters",
    "steps": "Steps",
    "tokens": "Tokens a run",
}
OF_A_COMPARISON = ("difference", "p", "p_holm")
ESCAPE = (
    "A run is off the floor at its first evaluation more than 0.1 nats below it; runs that never"
    " are count as later than any."
)
PAIRED = (
    "Differences are paired by seed; p is of Student's t on the paired differences, and Holm's"
    " correction is over all {n} comparisons of the column."
)
ROUNDING = (
    " Scores to 3 decimals, p-values to 2 significant digits, norms to 3, steps to whole ones."
)


@dataclass(frozen=True)
class Comparison:
    """An arm's gap to its reference, with the test of no difference."""

    gap: Gap
    p: float | None
    p_holm: float | None


def compare_all(
    arms: Sequence[StudyArm], reference: Callable[[StudyArm], StudyArm | None]
) -> dict[str, Comparison]:
    """Compare each arm with its reference, by arm name; an arm without one is left out."""
    pairs = {arm.name: (arm, other) for arm in arms if (other := reference(arm)) is not None}
    gaps = {name: compare(*pair) for name, pair in pairs.items()}
    ps = {name: t_test(gap.difference) for name, gap in gaps.items()}
    adjusted = holm(ps)
    return {name: Comparison(gap, ps[name], adjusted[name]) for name, gap in gaps.items()}


def row_key(study: str, arm: StudyArm) -> str:
    """Return an arm's part of a cell's id; another study's arm, or the root's, says whose it is."""
    return arm.name if arm.study == study else f"{arm.study}-{arm.name}"


def arms_section(
    runs: StudyRuns,
    arms: Sequence[StudyArm],
    label: Callable[[StudyArm], str],
    compared: Mapping[str, Comparison] | None = None,
    reference: str = "reference",
    more: Mapping[str, str] | None = None,
    contents: Callable[[StudyArm], Mapping[str, Content]] = lambda arm: {},
) -> Section:
    """Return one row an arm; `more` names a study's own columns, which `contents` fills."""
    columns = {
        key: text.format(reference=reference)
        for key, text in COLUMNS.items()
        if compared is not None or key not in OF_A_COMPARISON
    }
    own = dict(more or {})
    order = [*list(columns)[:5], *own, *list(columns)[5:]]
    shown = {**columns, **own}
    rows = {}
    for arm in arms:
        made = {**_arm(arm, runs.floor), **contents(arm)}
        if compared is not None:
            made |= _comparison(compared.get(arm.name) if arm.study == runs.name else None)
        rows[row_key(runs.name, arm)] = (label(arm), made)
    return Section("Arm", {key: shown[key] for key in order}, rows)


def _arm(arm: StudyArm, floor: float) -> dict[str, Content]:
    best, final = arm.estimate("best_val_loss"), arm.estimate("final_val_loss")
    to_floor = None if best.mean is None else best.mean - floor
    return {
        "best_val_loss": Content(LOSS, best, "spread"),
        "interval": Content(LOSS, best, "interval"),
        "n": cells.value(RUNS, best.n, best.n, tables.run_count(arm)),
        "final_val_loss": cells.value(LOSS, final.mean, final.n),
        "to_floor": cells.value(DIFFERENCE, to_floor, best.n),
        "escape_step": _escape(arm),
        "n_params": cells.value(COUNT, arm.n_params, len(arm.planned)),
        "steps": cells.value(COUNT, arm.run.steps, len(arm.planned)),
        "tokens": cells.value(COUNT, arm.tokens, len(arm.planned)),
    }


def _escape(arm: Arm) -> Content:
    """Show the median step off the floor, censored runs last, and how many runs left."""
    left = sorted(step for run in arm.finished if (step := run["escape_step"]) is not None)
    n = len(arm.finished)
    middle = (n - 1) // 2
    if n and middle < len(left):
        count = "" if len(left) == n else f" ({len(left)} of {n})"
        return cells.value(STEP, left[middle], n, f"{left[middle]}{count}")
    return cells.value(STEP, None, n, f"{len(left)} of {n} left" if n else cells.NONE)


def _comparison(of: Comparison | None) -> dict[str, Content]:
    if of is None:
        nothing = {key: cells.value(SIGNIFICANCE, None, 0) for key in ("p", "p_holm")}
        return {"difference": cells.value(DIFFERENCE, None, 0), **nothing}
    n = of.gap.difference.n
    return {
        "difference": Content(DIFFERENCE, of.gap.difference, "both"),
        "p": cells.value(SIGNIFICANCE, of.p, n),
        "p_holm": cells.value(SIGNIFICANCE, of.p_holm, n),
    }


def table(
    runs: StudyRuns,
    title: str,
    sections: Sequence[Section],
    arms: Sequence[StudyArm],
    compared: Mapping[str, Comparison] | None = None,
    notes: Sequence[str] = (),
) -> cells.Table:
    """Return a study's table: its sections, the n-gram ladder, and how to read them."""
    read = [tables.BEST, tables.SPREAD, ESCAPE]
    if compared:
        n = sum(comparison.p is not None for comparison in compared.values())
        read.append(PAIRED.format(n=n))
    rounding = cells.ROUNDING.format(name=runs.name) + ROUNDING
    below = [*read, *notes, tables.FLOOR, counts_note(arms), *tables.diverged_note(arms), rounding]
    ladder = tables.references({runs.scale: runs.data})
    return cells.Table(runs.name, title, [*sections, *ladder], below)


def counts(arms: Sequence[StudyArm]) -> dict[str, int]:
    """Return how many arms and runs were planned, and what became of the runs."""
    of = {"arms": len(arms)}
    for name in ("planned", "finished", "diverged"):
        of[name] = sum(len(getattr(arm, name)) for arm in arms)
    return of


def counts_note(arms: Sequence[StudyArm]) -> str:
    """Return the sentence that says that no arm is missing."""
    of = counts(arms)
    seeds = dict.fromkeys(run.key.seed for arm in arms for run in arm.planned)
    return (
        f"{of['arms']} arms; seeds {', '.join(map(str, seeds))}; {of['planned']} runs planned,"
        f" {of['finished']} finished, {of['diverged']} diverged."
    )
