"""Escape times cut off by the budget: Kaplan-Meier survival on the floor, and the log-rank test."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats as scipy_stats

from resablate.results import Result
from resablate.stats import CONFIDENCE


class Survival(NamedTuple):
    """Share of runs still on the floor after each step, with its 95% band.

    The band is Greenwood's, on the log(-log) scale, which keeps it between 0 and 1; it is None
    where no run has left or all have.
    """

    steps: list[int]
    share: list[float]
    lo: list[float | None]
    hi: list[float | None]

    @property
    def median(self) -> int | None:
        """The first step after which at most half are on the floor; None if it is never reached."""
        return next(
            (step for step, s in zip(self.steps, self.share, strict=True) if s <= 0.5), None
        )


def escapes(runs: Sequence[Result]) -> tuple[list[int], list[bool]]:
    """Return when each run left the floor or was last seen on it, and whether it left.

    A run that never leaves is censored at its last step; a diverged one where it diverged.
    """
    times, left = [], []
    for run in runs:
        seen = run["escape_step"]
        left.append(seen is not None)
        if seen is None:
            seen = run["steps"] if run.status == "finished" else run["diverged_at"]
        times.append(int(seen))
    return times, left


def _censored(times: Sequence[int], left: Sequence[bool]) -> scipy_stats.CensoredData:
    return scipy_stats.CensoredData.right_censored(times, ~np.asarray(left))


def kaplan_meier(times: Sequence[int], left: Sequence[bool]) -> Survival:
    """Return the survival curve of right-censored times, from step 0."""
    curve = scipy_stats.ecdf(_censored(times, left)).sf
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of the undefined ends, None here
        band = curve.confidence_interval(CONFIDENCE, method="log-log")
    ends = [
        [None if np.isnan(p) else float(p) for p in end.probabilities]
        for end in (band.low, band.high)
    ]
    steps = [int(step) for step in curve.quantiles]
    share = [float(p) for p in curve.probabilities]
    return Survival([0, *steps], [1.0, *share], [None, *ends[0]], [None, *ends[1]])


def logrank(a: Sequence[Result], b: Sequence[Result]) -> float | None:
    """Return the log-rank test's p that two groups leave alike; None where no time can tell."""
    groups = [escapes(runs) for runs in (a, b)]
    if not any(any(left) for _, left in groups):
        return None
    with np.errstate(invalid="ignore"):  # all leave at once: 0 / 0
        p = float(scipy_stats.logrank(*(_censored(*group) for group in groups)).pvalue)
    return None if np.isnan(p) else p
