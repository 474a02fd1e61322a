"""Streams: Philox by an independent implementation, and masks that depend on nothing else."""

import numpy as np
import pytest
import torch

from resablate import dropout, rng
from resablate.rng import Purpose
from toys import CPU, toy_run

MASK = 2**64 - 1


def philox(key: tuple[int, int], counter: tuple[int, int, int, int]) -> list[int]:
    """Philox4x64-10 in Python integers, after Salmon et al. 2011."""
    (k0, k1), (c0, c1, c2, c3) = key, counter
    for _ in range(10):
        p0, p1 = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = (p1 >> 64) ^ c1 ^ k0, p1 & MASK, (p0 >> 64) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & MASK, (k1 + 0xBB67AE8584CAA73B) & MASK
    return [c0, c1, c2, c3]


def test_published_vector_of_philox():
    # The known answer for all-zero key and counter (Random123's kat_vectors).
    assert philox((0, 0), (0, 0, 0, 0)) == [
        0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B,
    ]  # fmt: skip


def test_words_are_philox_of_seed_purpose_and_position():
    expected = philox((7, Purpose.DATA), (1, 4, 5, 6)) + philox((7, Purpose.DATA), (2, 4, 5, 6))
    assert rng.words(7, Purpose.DATA, 8, (4, 5, 6)).tolist() == expected


def test_integers_are_uniform_and_inside():
    draws = rng.integers(1, Purpose.DATA, 60_000, 6)
    counts = np.bincount(draws, minlength=6)
    assert counts.size == 6
    assert np.abs(counts - 10_000).max() < 400  # 4.4 standard deviations


def test_streams_differ_by_purpose_seed_and_position():
    draws = [
        rng.words(1, Purpose.DATA, 4).tolist(),
        rng.words(2, Purpose.DATA, 4).tolist(),
        rng.words(1, Purpose.DROPOUT, 4).tolist(),
        rng.words(1, Purpose.DATA, 4, (1, 0, 0)).tolist(),
    ]
    assert len({tuple(draw) for draw in draws}) == 4


def keep(seed, n, rate, at):
    return rng.mask(seed, n, rate, at, np.uint8(1)).astype(bool)


def test_mask_is_the_streams_16_bit_draws_against_the_rate():
    draws = rng.words(5, Purpose.DROPOUT, 8, (7, 9, 0)).view("<u2")
    assert keep(5, 30, 0.2, (7, 9)).tolist() == (draws[:30] >= 13107).tolist()


@pytest.mark.parametrize("n", [1, 15, 16, 17, 2 * rng.CHUNK + 5])
def test_masks_do_not_depend_on_the_device(n):
    on_device = dropout.keep_on_device(5, n, 0.2, (7, 9), torch.device("cpu"))
    assert np.array_equal(keep(5, n, 0.2, (7, 9)), on_device.numpy())


def test_masks_of_a_pass_do_not_depend_on_threads():
    run = toy_run(dropout=0.3)
    alone, shared = (list(dropout.Masks(run, 1, 5, CPU, threads)._masks) for threads in (1, 3))
    assert len(alone) == 1 + 3 * run.n_layer
    assert all(torch.equal(a, b) for a, b in zip(alone, shared, strict=True))


@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_device_masks_at_the_ends_of_the_seed_range(seed):
    on_device = dropout.keep_on_device(seed, 99, 0.5, (1, 2), torch.device("cpu"))
    assert np.array_equal(keep(seed, 99, 0.5, (1, 2)), on_device.numpy())


def test_masks_drop_at_the_realised_rate():
    assert rng.realised(0.2) == 13107 / 65536
    kept = keep(3, 1_000_000, 0.2, (0, 0)).mean()
    assert abs(1 - kept - 0.2) < 0.002  # 5 standard deviations


def test_init_of_a_parameter_depends_on_its_name_only():
    a = rng.normal(1, "blocks.0.attn.qkv.weight", (200, 100))
    assert np.array_equal(a, rng.normal(1, "blocks.0.attn.qkv.weight", (200, 100)))
    assert not np.array_equal(a, rng.normal(1, "blocks.1.attn.qkv.weight", (200, 100)))
    assert abs(a.mean()) < 0.03
    assert abs(a.std() - 1) < 0.02
