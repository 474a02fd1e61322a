import itertools
import math

import pytest

from resablate.stats import Estimate, estimate, mean_of_shared, paired_difference, ratio

# 97.5% points of Student's t: closed form on 2 degrees of freedom, a printed table on 7.
T_2 = 0.95 * math.sqrt(2 / (4 * 0.975 * 0.025))
T_7 = 2.3646


def test_three_values_by_hand():
    n, mean, std, lo, hi = estimate([1.0, 2.0, 3.0])
    assert (n, mean, std) == (3, 2.0, 1.0)  # squares 1 + 0 + 1, over n - 1 = 2
    assert lo == pytest.approx(2 - T_2 / math.sqrt(3), rel=1e-14)
    assert hi == pytest.approx(2 + T_2 / math.sqrt(3), rel=1e-14)


def test_the_phase_2_seeds_have_the_sample_std_not_the_printed_population_std():
    # 2.289, 3.354, 2.130: the paper prints .544, which divides by n.
    result = estimate([2.289, 3.354, 2.130])
    assert result.mean == pytest.approx(2.591, abs=5e-4)
    assert result.std == pytest.approx(0.544 * math.sqrt(3 / 2), abs=1e-3)


def test_eight_values_use_seven_degrees_of_freedom():
    values = [float(i % 2) for i in range(8)]  # mean 1/2, squares 8/4 over 7
    result = estimate(values)
    half = T_7 * math.sqrt(2 / 7) / math.sqrt(8)
    assert (result.lo, result.hi) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-5)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], (0, None, None, None, None)), ([2.5], (1, 2.5, None, None, None))],
)
def test_too_few_values_have_no_spread(values, expected):
    assert estimate(values) == expected


def test_the_order_of_the_seeds_decides_no_bit():
    values = [3.1, 1e16, -1e16, 0.7]
    assert len({estimate(list(order)) for order in itertools.permutations(values)}) == 1


def test_pairing_uses_the_shared_seeds_and_removes_what_they_share():
    # Differences .5, .5 although both arms scatter by units; seeds 3 and 4 have no partner.
    a = {1: 10.5, 2: 20.5, 3: 99.0}
    b = {2: 20.0, 1: 10.0, 4: -5.0}
    assert paired_difference(a, b) == Estimate(2, 0.5, 0.0, 0.5, 0.5)
    assert mean_of_shared(a, b) == 15.5
    assert paired_difference({1: 1.0}, {2: 1.0}) == (0, None, None, None, None)


def test_scaling_scales_the_spread_too_and_a_missing_factor_gives_nothing():
    assert Estimate(3, 1.0, 0.5, -1.0, 3.0).scaled(2.0) == (3, 2.0, 1.0, -2.0, 6.0)
    assert Estimate(1, 1.0, None, None, None).scaled(3.0) == (1, 3.0, None, None, None)
    assert Estimate(3, 1.0, 0.5, 0.0, 2.0).scaled(None) == (3, None, None, None, None)


def test_ratio_of_nothing_is_nothing():
    assert ratio(3.0, 1.5) == 2.0
    assert ratio(None, 1.5) is None
    assert ratio(1.5, None) is None
    assert ratio(1.5, 0.0) is None
