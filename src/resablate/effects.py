"""Effects of two-level factors by least squares: main effects, interactions and their aliases."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from resablate.stats import CONFIDENCE, Estimate

Term = tuple[str, ...]  # ("W",) is a main effect, ("T", "W") an interaction


class Effect(NamedTuple):
    """What going from -1 to +1 changes, in the outcome's unit."""

    term: Term
    aliases: tuple[tuple[int, Term], ...]  # (sign, term) that this design cannot tell from it
    estimate: Estimate  # n: observations; std: standard error of the effect
    p: float | None  # two-sided, of no effect

    @property
    def name(self) -> str:
        """The term and what it cannot be told from, such as `T×S = −E×M`."""
        signed = [f"{'−' if sign < 0 else ''}{'×'.join(term)}" for sign, term in self.aliases]
        return " = ".join(["×".join(self.term), *signed])


def column(coding: Mapping[str, Sequence[int]], term: Term) -> np.ndarray:
    """Return the product of a term's factors, ±1 for each observation."""
    return np.prod([coding[factor] for factor in term], axis=0)


def terms(coding: Mapping[str, Sequence[int]]) -> list[tuple[Term, tuple[tuple[int, Term], ...]]]:
    """Return the main effects and two-factor interactions that a design can tell apart.

    Each comes with its aliases, the terms whose column is its own or its negative. A term that does
    not vary in the design is an error of the design.
    """
    found: list[tuple[Term, list[tuple[int, Term]], np.ndarray]] = []
    for order in (1, 2):
        for term in combinations(coding, order):
            values = column(coding, term)
            if order == 1 and abs(values.sum()) == len(values):
                raise ValueError(f"factor {term[0]} has one level in this design")
            for _, aliases, kept in found:
                sign = next((s for s in (1, -1) if np.array_equal(values, s * kept)), 0)
                if sign:
                    aliases.append((sign, term))
                    break
            else:
                found.append((term, [], values))
    return [(term, tuple(aliases)) for term, aliases, _ in found]


def fit(
    coding: Mapping[str, Sequence[int]], blocks: Sequence[object], outcome: Sequence[float]
) -> list[Effect]:
    """Estimate each effect by least squares with a constant per block (a seed).

    Runs that share a seed share its initial weights and batches: the blocks take that out of the
    error. Effects of three and more factors count as error. The intervals are Student's t.
    """
    y = np.asarray(outcome, dtype=float)
    kept = terms(coding)
    block = np.array([[own == b for b in dict.fromkeys(blocks)] for own in blocks], dtype=float)
    # Halves, so that a coefficient is the difference between the two levels.
    design = np.column_stack([*(column(coding, term) / 2 for term, _ in kept), block])
    coefficients, _, rank, _ = np.linalg.lstsq(design, y)
    if rank < design.shape[1]:
        raise ValueError("the design cannot tell its effects apart; too many runs are missing")
    freedom = len(y) - rank
    residual = y - design @ coefficients
    errors = np.full(rank, np.nan)
    if freedom:
        variance = float(residual @ residual) / freedom
        errors = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    return [
        _effect(term, aliases, float(coefficients[i]), float(errors[i]), freedom, len(y))
        for i, (term, aliases) in enumerate(kept)
    ]


def _effect(
    term: Term,
    aliases: tuple[tuple[int, Term], ...],
    value: float,
    error: float,
    freedom: int,
    n: int,
) -> Effect:
    if not freedom:
        return Effect(term, aliases, Estimate(n, value, None, None, None), None)
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    p = float(2 * stdtr(freedom, -abs(value) / error)) if error else None
    return Effect(term, aliases, Estimate(n, value, error, value - half, value + half), p)
