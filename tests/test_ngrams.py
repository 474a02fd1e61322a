"""The n-gram ladder against hand-worked values and an independent, slow model of dictionaries."""

import math
from collections import Counter

import numpy as np
import pytest

from resablate import corpora, ngrams
from resablate.stages import prepare_shakespeare


def slow_unigram(train: list, token: int, vocab_size: int) -> float:
    counts = Counter(train)
    types = len(counts)
    if types == vocab_size:
        return counts[token] / len(train)
    if token in counts:
        return counts[token] / (len(train) + types)
    return types / (len(train) + types) / (vocab_size - types)


def slow_counts(train: list, n: int, highest: bool) -> Counter:
    """Return the counts of n-grams in training, or of the distinct tokens before them."""
    if highest:
        return Counter(tuple(train[i : i + n]) for i in range(len(train) - n + 1))
    return Counter(gram[1:] for gram in slow_counts(train, n + 1, highest=True))


def slow_discount(count: int, counts: Counter) -> float:
    n1, n2, n3, n4 = (list(counts.values()).count(k) for k in (1, 2, 3, 4))
    discounts = [0.0]
    if n1 * n2 * n3:
        y = n1 / (n1 + 2 * n2)
        discounts = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
    if min(discounts) <= 0:
        discounts = [0.5, 1.0, 1.5]
    return [0.0, *discounts][min(count, 3)]


def slow_probability(
    train: list, history: tuple, token: int, vocab_size: int, highest: bool = True
) -> float:
    """Return p(token | history) by the formula, recursively, counting anew each time."""
    if not history and highest:
        return slow_unigram(train, token, vocab_size)
    if history:
        shorter = slow_probability(train, history[1:], token, vocab_size, highest=False)
    else:
        shorter = 1 / vocab_size
    counts = slow_counts(train, len(history) + 1, highest)
    after = {gram[-1]: count for gram, count in counts.items() if gram[:-1] == history}
    if not after:
        return shorter
    count = after.get(token, 0)
    freed = sum(slow_discount(c, counts) for c in after.values())
    return (count - slow_discount(count, counts) + freed * shorter) / sum(after.values())


def slow_cross_entropy(train: list, val: list, vocab_size: int, order: int) -> float:
    logs = [
        math.log(slow_probability(train, tuple(val[max(0, i - order + 1) : i]), token, vocab_size))
        for i, token in enumerate(val)
    ]
    return -sum(logs) / len(val)


def test_two_rungs_worked_by_hand():
    # Bigrams: 00 four times, 11 three, 01 and 10 two, 12, 20, 02 and 21 one: n_1 to n_4 are 4, 2,
    # 1, 1, so Y = 1/2 and D = 1/2, 5/4, 1. Before 0 came 3 tokens, before 1 too, before 2 came 2;
    # no token has 1, so D = 1/2, 1, 3/2 there: p(2) = (2 - 1) / 8 + (3/2 + 3/2 + 1) / 8 / 3 = 7/24.
    train = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 2, 0, 2, 1, 0])
    ladder = ngrams.cross_entropies(train, np.array([0, 2, 2]), 3, 2)
    assert ladder[1] == pytest.approx(-math.log(8 / 16 * 2 / 16 * 2 / 16) / 3, rel=1e-15)
    after_0 = (1 - 1 / 2 + (1 + 5 / 4 + 1 / 2) * 7 / 24) / 7
    after_2 = (1 / 2 + 1 / 2) * 7 / 24 / 2
    assert ladder[2] == pytest.approx(-math.log(8 / 16 * after_0 * after_2) / 3, rel=1e-15)


def test_unseen_tokens_share_the_escape_mass():
    # N = 3, T = 2: 2/5 and 1/5 for the seen, 2/5 for the two unseen together
    ladder = ngrams.cross_entropies(np.array([0, 0, 1]), np.arange(4), 4, 1)
    expected = -(math.log(2 / 5) + 3 * math.log(1 / 5)) / 4
    assert ladder[1] == pytest.approx(expected, rel=1e-15)


def check_against_slow(train: np.ndarray, val: np.ndarray, vocab_size: int) -> None:
    fast = ngrams.cross_entropies(train.astype(np.uint16), val.astype(np.uint16), vocab_size, 5)
    for order, value in fast.items():
        slow = slow_cross_entropy(train.tolist(), val.tolist(), vocab_size, order)
        assert value == pytest.approx(slow, rel=1e-12)


@pytest.mark.parametrize(("vocab_size", "known"), [(5, 5), (50_257, 12)])
def test_every_rung_equals_the_slow_model(vocab_size, known):
    rng = np.random.default_rng(3)
    ids = rng.choice(vocab_size, known, replace=False)
    # Repeated material, so that long contexts recur, and new tokens in the validation split.
    train = np.concatenate([ids, np.tile(rng.choice(ids, 40), 3), rng.choice(ids, 60)])
    val = np.concatenate([train[20:50], rng.integers(0, vocab_size, 30)])
    check_against_slow(train, val, vocab_size)


@pytest.mark.parametrize("train", [[0] * 5, [0, 1, 2, 3, 4], [0, 1, 0, 1, 0, 1, 2]])
def test_tiny_corpora_have_every_rung(train):
    check_against_slow(np.array(train), np.array([0, 1, 5, 0, 1, 0, 0]), 6)


@pytest.mark.parametrize("history", [[], [4], [2, 0, 1], [1, 5, 1], [0, 1, 0]])
@pytest.mark.parametrize("length", [10, 300])
def test_probabilities_sum_to_one(length, history):
    # Of six tokens training lacks 4 and 5.
    train = np.random.default_rng(0).choice(4, length, p=[0.6, 0.2, 0.1, 0.1])
    before = 0.0
    if history:
        before = len(history) * ngrams.cross_entropies(train, np.array(history), 6, 4)[4]
    total = 0.0
    for token in range(6):
        val = np.array([*history, token])
        total += math.exp(before - len(val) * ngrams.cross_entropies(train, val, 6, 4)[4])
    assert total == pytest.approx(1, rel=1e-12)


def test_entropy_by_hand():
    assert ngrams.entropy(np.array([0, 0, 2, 5])) == pytest.approx(1.5 * math.log(2), rel=1e-15)


def test_the_shakespeare_ladder(workspace):
    tokens, _ = prepare_shakespeare.encode(corpora.tinyshakespeare())
    train, val = tokens[:1_003_854], tokens[1_003_854:]
    ladder = ngrams.cross_entropies(train, val, 65, 6)
    rungs = [round(loss, 4) for loss in ladder.values()]
    assert rungs == [3.3473, 2.4835, 2.0381, 1.7191, 1.5612, 1.5226]
    assert round(ngrams.entropy(train), 4) == 3.3091
    # The floor is the plain cross-entropy of the validation counts under the training shares.
    share, counts = np.bincount(train) / len(train), np.bincount(val, minlength=65)
    assert ladder[1] == pytest.approx(-(counts @ np.log(share)) / len(val), rel=1e-12)
