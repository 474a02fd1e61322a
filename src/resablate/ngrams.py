"""The n-gram ladder: what a model of the last n - 1 tokens can reach, in nats per token.

Its first rung is the floor: the unigram cross-entropy of the validation split under training
counts, the loss of a model that ignores its context. Each rung above is an interpolated modified
Kneser-Ney model (Chen & Goodman 1999, Computer Speech & Language 13, 359-394):

    p(w | h) = (c(hw) - D(c(hw)) + sum_v D(c(hv)) p(w | h')) / sum_v c(hv)

where h' is h without its first token. In a rung's highest order c counts occurrences in training;
in the lower orders c(g) counts the distinct tokens seen before g. The lowest, p(w) without
context, is interpolated with the uniform distribution. A context never seen leaves p(w | h').
Each order has its own discounts, from n_k, the number of its n-grams with c = k:

    D(0) = 0   D(k) = k - (k + 1) Y n_{k+1} / n_k, k = 1, 2   D(k >= 3) = 3 - 4 Y n_4 / n_3
    Y = n_1 / (n_1 + 2 n_2)

Where one of the three is undefined or not above 0, all of that order are KenLM's fallback (its
option --discount_fallback): 1/2, 1, 3/2. All probabilities come from arithmetic in a fixed order,
so thread count and vector width change no bit.
"""

import math
from typing import NamedTuple

import numpy as np


def cross_entropies(
    train: np.ndarray, val: np.ndarray, vocab_size: int, order: int
) -> dict[int, float]:
    """Return the validation cross-entropy, nats per token, of each order from 1 to `order`.

    `train` and `val` are 1-D arrays of token ids, `train` of at least `order` tokens. Near the
    start of `val` the context is as long as there are tokens. Memory is a few int64 copies of
    `train`, whatever the vocabulary.
    """
    train, val = train.astype(np.int64), val.astype(np.int64)
    probability = unigram(np.bincount(train, minlength=vocab_size))[val]
    ladder = {1: _mean_negative_log(probability)}
    no_context = np.zeros(vocab_size, np.int64)
    tokens = grams = _Grams(train, val, np.zeros_like(val), no_context, 1)
    lower = np.full(len(val) + 1, 1 / vocab_size)
    for n in range(2, order + 1):
        longer = _extend(grams, tokens, n)
        lower = _interpolate(grams, _continuations(grams, longer), lower[1:])
        probability[n - 1 :] = _interpolate(longer, np.bincount(longer.train), lower[1:])
        ladder[n] = _mean_negative_log(probability)
        grams = longer
    return ladder


class _Grams(NamedTuple):
    """The n-gram that ends at each position from n - 1 on, as an index, and its context."""

    train: np.ndarray
    val: np.ndarray  # -1 where training has no such n-gram
    val_context: np.ndarray  # the (n-1)-gram before the last token, likewise
    context_of: np.ndarray  # of each n-gram
    contexts: int  # how many there are

    @property
    def size(self) -> int:
        return len(self.context_of)


def _extend(contexts: _Grams, tokens: _Grams, n: int) -> _Grams:
    """Return the n-grams, given those of n - 1 tokens and of one."""
    # An index is below the number of training tokens, so that the keys stay far below 2**63.
    keys = contexts.train[:-1] * tokens.size + tokens.train[n - 1 :]
    grams, train = np.unique(keys, return_inverse=True)
    val_context = contexts.val[:-1]
    keys = val_context * tokens.size + tokens.val[n - 1 :]  # negative, so never found, without h
    place = np.minimum(np.searchsorted(grams, keys), len(grams) - 1)
    val = np.where(grams[place] == keys, place, -1)
    return _Grams(train, val, val_context, grams // tokens.size, contexts.size)


def _continuations(grams: _Grams, longer: _Grams) -> np.ndarray:
    """Return for each n-gram how many distinct tokens training has before it."""
    suffix_of = np.empty(longer.size, np.int64)
    suffix_of[longer.train] = grams.train[1:]
    return np.bincount(suffix_of, minlength=grams.size)


def _interpolate(grams: _Grams, counts: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """Return p(w | h) where the n-grams of `val` end, from `lower`, p(w | h') at the same places.

    `counts` has one count for each n-gram.
    """
    discount = discounts(counts_of_counts(counts))[np.minimum(counts, 3)]
    total = np.bincount(grams.context_of, weights=counts, minlength=grams.contexts)  # exact
    freed = np.bincount(grams.context_of, weights=discount, minlength=grams.contexts)
    kept = np.where(grams.val >= 0, (counts - discount)[grams.val], 0)

    probability = lower.copy()
    seen = np.flatnonzero((grams.val_context >= 0) & (total[grams.val_context] > 0))
    h = grams.val_context[seen]
    probability[seen] = (kept[seen] + freed[h] * lower[seen]) / total[h]
    return probability


def discounts(n: list[int]) -> np.ndarray:
    """Return D(0), D(1), D(2) and D(3 or more); n[k] n-grams occur k times, k at least to 4."""
    if n[1] and n[2] and n[3]:
        y = n[1] / (n[1] + 2 * n[2])
        found = [k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3)]
        if all(d > 0 for d in found):  # with 0, some tokens might have no probability
            return np.array([0, *found])
    return np.array([0, 0.5, 1, 1.5])


def counts_of_counts(counts: np.ndarray) -> list[int]:
    """Return how many of the counts are 0, 1, 2, 3, 4, and 5 or more."""
    return np.bincount(np.minimum(counts, 5), minlength=6).tolist()


def unigram(counts: np.ndarray) -> np.ndarray:
    """Return the probability of each token, from its count in training: its share of them all.

    If training lacks some tokens, T of N + T parts are theirs, in equal shares (T: types seen).
    """
    total, types = counts.sum(), np.count_nonzero(counts)
    if types == len(counts):
        return counts / total
    unseen = types / (total + types) / (len(counts) - types)
    return np.where(counts > 0, counts / (total + types), unseen)


def entropy(train: np.ndarray) -> float:
    """Return the entropy of the unigram distribution of `train`, nats per token."""
    return entropy_of(np.bincount(train))


def entropy_of(counts: np.ndarray) -> float:
    """Return the entropy, in nats, of the distribution that has these counts."""
    share = counts[counts > 0] / counts.sum()
    return math.fsum(-p * math.log(p) for p in share.tolist())


def _mean_negative_log(probability: np.ndarray) -> float:
    # The C library's log and an exact sum: numpy's log differs in its last bit between CPUs.
    return -math.fsum(map(math.log, probability.tolist())) / len(probability)
