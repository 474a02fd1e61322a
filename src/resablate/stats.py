"""Statistics over seeds: sample standard deviation, Student's t interval, paired differences."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from scipy.special import stdtr, stdtrit  # Student's t; far lighter than scipy.stats

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean over n values with its spread; None where n is too small to have one."""

    n: int
    mean: float | None
    std: float | None  # sample standard deviation, divisor n - 1
    lo: float | None  # ends of the 95% interval of the mean
    hi: float | None

    def scaled(self, factor: float | None) -> Self:
        """Return the estimate of a positive factor times the quantity; without one, of nothing."""
        if factor is None:
            return type(self)(self.n, None, None, None, None)
        return type(self)(self.n, *(None if x is None else factor * x for x in self[1:]))


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean, sample standard deviation and t interval of independent values.

    The values are summed exactly, so that their order decides no bit of the result.
    """
    n = len(values)
    if n == 0:
        return Estimate(0, None, None, None, None)
    mean = statistics.fmean(values)
    if n == 1:
        return Estimate(1, mean, None, None, None)
    std = statistics.stdev(values)
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * std / math.sqrt(n)
    return Estimate(n, mean, std, mean - half, mean + half)


def shared(a: Mapping[int, float], b: Mapping[int, float]) -> list[int]:
    """Return the seeds that both have, in a's order."""
    return [seed for seed in a if seed in b]


def paired_difference(a: Mapping[int, float], b: Mapping[int, float]) -> Estimate:
    """Estimate a - b from the differences of the seeds that both have."""
    return estimate([a[seed] - b[seed] for seed in shared(a, b)])


def t_test(of: Estimate) -> float | None:
    """Return the two-sided p of a mean of zero (Student's t); None without a spread to judge by."""
    if not of.std:
        return None
    return float(2 * stdtr(of.n - 1, -abs(of.mean) * math.sqrt(of.n) / of.std))


def holm(ps: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return Holm's (1979) adjusted p-values of a family of tests; None stays None, uncounted."""
    ordered = sorted((p, name) for name, p in ps.items() if p is not None)
    adjusted: dict[str, float | None] = dict.fromkeys(ps)
    largest = 0.0
    for rank, (p, name) in enumerate(ordered):
        largest = max(largest, min(1.0, p * (len(ordered) - rank)))
        adjusted[name] = largest
    return adjusted


def mean_of_shared(a: Mapping[int, float], b: Mapping[int, float]) -> float | None:
    """Return the mean of a over the seeds that b has too."""
    return estimate([a[seed] for seed in shared(a, b)]).mean


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """Return the quotient, or None where there is none."""
    if numerator is None or not denominator:
        return None
    return numerator / denominator
