"""Words made from numbers, so that no sentence can say what its numbers do not."""

from collections.abc import Callable, Iterable, Sequence

from resablate import labels
from resablate.arms import Arm
from resablate.stats import Estimate
from resablate.studyruns import StudyArm

SIGNIFICANT = 0.05  # of p-values after Holm's correction


def listed(items: Iterable[object]) -> str:
    """Return `a, b and c`; `none` for nothing."""
    *rest, last = [str(item) for item in items] or ["none"]
    return f"{', '.join(rest)} and {last}" if rest else last


def span(values: Iterable[float], spec: str) -> str:
    """Return one number, or the smallest and the largest."""
    values = list(values)
    low, high = (f"{end:{spec}}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def setting(scale: str, arms: Sequence[StudyArm]) -> str:
    """Return where a result was found: scale, size, budget and seeds, as a sentence's beginning."""
    millions = span((arm.n_params / 1e6 for arm in arms), ".2f")
    steps = span((arm.run.steps for arm in arms), ",d")
    seeds = list(dict.fromkeys(run.key.seed for arm in arms for run in arm.planned))
    which = "seed" if len(seeds) == 1 else "seeds"
    named = ", ".join(map(str, seeds))
    return (
        f"At scale {labels.scale(scale)} ({millions}M parameters, {steps} steps, {which} {named})"
    )


def loss(of: Estimate) -> str:
    """Return a mean loss with its sample standard deviation."""
    if of.mean is None:
        return "no finished run"
    return f"{of.mean:.3f}" if of.std is None else f"{of.mean:.3f} ± {of.std:.3f}"


def change(of: Estimate, spec: str = "+z.3f") -> str:
    """Return a difference with its interval."""
    if of.mean is None:
        return "not estimable"
    interval = "" if of.lo is None else f" [{of.lo:{spec}}, {of.hi:{spec}}]"
    return f"{of.mean:{spec}}{interval}"


def p_value(p: float | None) -> str:
    if p is None:
        return "no test"
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def significant(p: float | None) -> bool:
    return p is not None and p < SIGNIFICANT


def escaped(arm: Arm) -> tuple[int, int]:
    """Return how many finished runs left the unigram floor, and how many finished."""
    return sum(run["escape_step"] is not None for run in arm.finished), len(arm.finished)


def learns(arm: Arm) -> bool:
    """Return whether every finished run, and at least one, left the floor."""
    k, n = escaped(arm)
    return 0 < n == k


def collapsed(arm: Arm) -> bool:
    """Return whether no finished run, of at least one, left the floor."""
    k, n = escaped(arm)
    return k == 0 < n


def fates(arms: Iterable[StudyArm], label: Callable[[StudyArm], str]) -> str:
    """Say which arms left the unigram floor, which sometimes, and which never."""
    arms = list(arms)
    always = [label(arm) for arm in arms if learns(arm)]
    never = [label(arm) for arm in arms if collapsed(arm)]
    sometimes = [arm for arm in arms if not learns(arm) and not collapsed(arm)]
    parts = []
    if always:
        parts.append(f"{listed(always)} left the unigram floor with every seed")
    for arm in sometimes:
        k, n = escaped(arm)
        parts.append(f"{label(arm)} left it in {k} of {n} runs" if n else f"{label(arm)} diverged")
    if never:
        parts.append(f"{listed(never)} never left the unigram floor")
    return "; ".join(parts)
