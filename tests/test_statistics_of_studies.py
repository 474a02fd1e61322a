"""Survival, multiplicity and tests against textbook and hand-worked values."""

import pytest

from resablate import stats, survival

# Freireich et al. 1963, weeks of remission under 6-MP and under placebo; + is censored (0).
WEEKS = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
RELAPSED = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
PLACEBO = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]


class Run(dict):
    """What survival reads of a run."""

    status = "finished"


def runs(*steps):
    return [Run(escape_step=step, steps=400, diverged_at=None) for step in steps]


def test_kaplan_meier_of_the_textbook_example():
    curve = survival.kaplan_meier(WEEKS, [bool(x) for x in RELAPSED])
    at = dict(zip(curve.steps, curve.share, strict=True))
    expected = {0: 1, 6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert {step: round(at[step], 3) for step in expected} == expected
    assert curve.median == 23
    # Kalbfleisch and Prentice's band: .448 has Greenwood error .1346, so that log(-log) has
    # .1346 / (.448 * .803) = .3742, and the ends are .448 ** exp(±1.96 * .3742).
    i = curve.steps.index(23)
    assert (curve.lo[i], curve.hi[i]) == pytest.approx((0.188, 0.680), abs=1e-3)


def test_logrank_of_the_textbook_example():
    of_drug = [
        Run(escape_step=week if left else None, steps=week, diverged_at=None)
        for week, left in zip(WEEKS, RELAPSED, strict=True)
    ]
    p = survival.logrank(of_drug, runs(*PLACEBO))  # chi-squared 16.79, one degree of freedom
    assert p == pytest.approx(4.17e-5, rel=1e-2)
    assert survival.logrank(runs(None, None), runs(None)) is None


def test_runs_that_never_leave_are_censored_at_the_budget_and_diverged_ones_where_they_did():
    lost = Run(escape_step=None, steps=400, diverged_at=150)
    lost.status = "diverged"
    assert survival.escapes([*runs(100, None), lost]) == ([100, 400, 150], [True, False, False])
    curve = survival.kaplan_meier(*survival.escapes(runs(100, 200, None, None)))
    assert (curve.steps, curve.share) == ([0, 100, 200, 400], [1.0, 0.75, 0.5, 0.5])
    assert curve.median == 200


def test_nobody_or_everybody_leaving_has_a_curve_without_a_band():
    nobody = survival.kaplan_meier([400, 400], [False, False])
    assert (nobody.share, nobody.lo, nobody.median) == ([1.0, 1.0], [None, None], None)
    everybody = survival.kaplan_meier([50, 50], [True, True])
    assert (everybody.share, everybody.hi, everybody.median) == ([1.0, 0.0], [None, None], 50)


def test_holm_by_hand():
    ps = {"a": 0.01, "b": 0.04, "c": None, "d": 0.03, "e": 0.005}
    # sorted .005 x 4, .01 x 3, .03 x 2, .04 x 1 but not below the one before
    expected = {"a": 0.03, "b": 0.06, "c": None, "d": 0.06, "e": 0.02}
    assert stats.holm(ps) == pytest.approx(expected)
    assert stats.holm({"a": 0.7, "b": 0.8}) == {"a": 1.0, "b": 1.0}


def test_paired_t_test_by_hand():
    # mean .5, sample std sqrt(.03): t = .5 sqrt(3) / sqrt(.03) = 5 on 2 degrees of freedom,
    # for which p = 1 - t / sqrt(t^2 + 2)
    p = stats.t_test(stats.estimate([0.4, 0.4, 0.7]))
    assert p == pytest.approx(1 - 5 / 27**0.5)
    assert stats.t_test(stats.estimate([0.2, 0.2, 0.2])) is None
    assert stats.t_test(stats.estimate([0.4])) is None
