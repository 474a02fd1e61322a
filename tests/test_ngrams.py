"""The n-gram ladder against hand-worked values and an independent, slow model of dictionaries."""

import math
from collections import Counter

import numpy as np
import pytest

from resablate import corpora, ngrams
from resablate.stages import prepare_shakespeare


def slow_probability(train: list, history: tuple, token: int, vocab_size: int) -> float:
    """Return p(token | history) by the formula, recursively, counting anew each time."""
    n = len(history)
    if n == 0:
        counts = Counter(train)
        types = len(counts)
        if types == vocab_size:
            return counts[token] / len(train)
        if token in counts:
            return counts[token] / (len(train) + types)
        return types / (len(train) + types) / (vocab_size - types)
    after = Counter(
        train[i + n] for i in range(len(train) - n) if tuple(train[i : i + n]) == history
    )
    shorter = slow_probability(train, history[1:], token, vocab_size)
    if not after:
        return shorter
    return (after[token] + len(after) * shorter) / (after.total() + len(after))


def slow_cross_entropy(train: list, val: list, vocab_size: int, order: int) -> float:
    logs = [
        math.log(slow_probability(train, tuple(val[max(0, i - order + 1) : i]), token, vocab_size))
        for i, token in enumerate(val)
    ]
    return -sum(logs) / len(val)


def test_two_rungs_worked_by_hand():
    # c(0) = 2, c(1) = 1; after 0 came 0 and 1, once each: p(1 | 0) = (1 + 2/3) / (2 + 2) = 5/12
    ladder = ngrams.cross_entropies(np.array([0, 0, 1]), np.array([0, 1]), 2, 2)
    assert ladder[1] == pytest.approx(-(math.log(2 / 3) + math.log(1 / 3)) / 2, rel=1e-15)
    assert ladder[2] == pytest.approx(-(math.log(2 / 3) + math.log(5 / 12)) / 2, rel=1e-15)


def test_unseen_tokens_share_the_escape_mass():
    # N = 3, T = 2: 2/5 and 1/5 for the seen, 2/5 for the two unseen together
    ladder = ngrams.cross_entropies(np.array([0, 0, 1]), np.arange(4), 4, 1)
    expected = -(math.log(2 / 5) + 3 * math.log(1 / 5)) / 4
    assert ladder[1] == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(("vocab_size", "known"), [(5, 5), (50_257, 12)])
def test_every_rung_equals_the_slow_model(vocab_size, known):
    rng = np.random.default_rng(3)
    ids = rng.choice(vocab_size, known, replace=False)
    # Repeated material, so that long contexts recur, and new tokens in the validation split.
    train = np.concatenate([ids, np.tile(rng.choice(ids, 40), 3), rng.choice(ids, 60)])
    val = np.concatenate([train[20:50], rng.integers(0, vocab_size, 30)])
    fast = ngrams.cross_entropies(train.astype(np.uint16), val.astype(np.uint16), vocab_size, 5)
    for order, value in fast.items():
        slow = slow_cross_entropy(train.tolist(), val.tolist(), vocab_size, order)
        assert value == pytest.approx(slow, rel=1e-12)


def test_probabilities_sum_to_one():
    train, history = np.array([0, 1, 2, 0, 1, 3, 0, 1, 2, 2]), [2, 0, 1]
    before = 3 * ngrams.cross_entropies(train, np.array(history), 6, 4)[4]
    total = 0.0
    for token in range(6):
        after = 4 * ngrams.cross_entropies(train, np.array([*history, token]), 6, 4)[4]
        total += math.exp(before - after)
    assert total == pytest.approx(1, rel=1e-12)


def test_entropy_by_hand():
    assert ngrams.entropy(np.array([0, 0, 2, 5])) == pytest.approx(1.5 * math.log(2), rel=1e-15)


def test_the_shakespeare_ladder(workspace):
    tokens, _ = prepare_shakespeare.encode(corpora.tinyshakespeare())
    train, val = tokens[:1_003_854], tokens[1_003_854:]
    ladder = ngrams.cross_entropies(train, val, 65, 6)
    assert [round(loss, 4) for loss in ladder.values()] == [
        3.3473,
        2.4858,
        2.0492,
        1.7738,
        1.6688,
        1.6981,
    ]
    assert round(ngrams.entropy(train), 4) == 3.3091
    # The floor is the plain cross-entropy of the validation counts under the training shares.
    share, counts = np.bincount(train) / len(train), np.bincount(val, minlength=65)
    assert ladder[1] == pytest.approx(-(counts @ np.log(share)) / len(val), rel=1e-12)
