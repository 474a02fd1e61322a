"""The n-gram ladder: what a model of the last n - 1 tokens can reach, in nats per token.

Its first rung is the floor: the unigram cross-entropy of the validation split under training
counts, the loss of a model that ignores its context. The rungs above are interpolated Witten-Bell
models (Witten & Bell 1991; Chen & Goodman 1998, eq. 17), where h' is h without its first token:

    p(w | h) = (c(hw) + T(h) p(w | h')) / (c(h) + T(h))

c counts occurrences in training, T(h) the distinct tokens seen after h. All probabilities come
from additions and divisions in a fixed order, so thread count and vector width change no bit.
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
    probability = _unigram(train, vocab_size)[val]
    ladder = {1: _mean_negative_log(probability)}
    tokens = grams = _Grams(train, val, vocab_size)
    for n in range(2, order + 1):
        grams = _extend(grams, tokens, n, probability)
        ladder[n] = _mean_negative_log(probability)
    return ladder


class _Grams(NamedTuple):
    """The n-gram that ends at each position from n - 1 on, as an index below `size`."""

    train: np.ndarray
    val: np.ndarray  # -1 where training has no such n-gram
    size: int


def _extend(contexts: _Grams, tokens: _Grams, n: int, probability: np.ndarray) -> _Grams:
    """Turn `probability` of order n - 1 into that of order n, in place; return the n-grams."""
    # An index is below the number of training tokens, so that the keys stay far below 2**63.
    keys = contexts.train[:-1] * tokens.size + tokens.train[n - 1 :]
    grams, train_grams, counts = np.unique(keys, return_inverse=True, return_counts=True)
    context_of = grams // tokens.size
    total = np.bincount(context_of, weights=counts, minlength=contexts.size)  # c(h), exact
    types = np.bincount(context_of, minlength=contexts.size)  # T(h)

    context = contexts.val[:-1]
    keys = context * tokens.size + tokens.val[n - 1 :]  # negative, so never found, without h
    place = np.minimum(np.searchsorted(grams, keys), len(grams) - 1)
    found = grams[place] == keys
    count = np.where(found, counts[place], 0)

    seen = np.flatnonzero((context >= 0) & (types[context] > 0))
    h, at = context[seen], seen + n - 1
    probability[at] = (count[seen] + types[h] * probability[at]) / (total[h] + types[h])
    return _Grams(train_grams, np.where(found, place, -1), len(grams))


def _unigram(train: np.ndarray, vocab_size: int) -> np.ndarray:
    """Return the probability of each token: its share of the training tokens.

    If training lacks some tokens, T of N + T parts are theirs, in equal shares (T: types seen).
    """
    counts = np.bincount(train, minlength=vocab_size)
    types = np.count_nonzero(counts)
    if types == vocab_size:
        return counts / len(train)
    unseen = types / (len(train) + types) / (vocab_size - types)
    return np.where(counts > 0, counts / (len(train) + types), unseen)


def entropy(train: np.ndarray) -> float:
    """Return the entropy of the unigram distribution of `train`, nats per token."""
    share = np.bincount(train) / len(train)
    share = share[share > 0]
    return math.fsum(-p * math.log(p) for p in share.tolist())


def _mean_negative_log(probability: np.ndarray) -> float:
    # The C library's log and an exact sum: numpy's log differs in its last bit between CPUs.
    return -math.fsum(map(math.log, probability.tolist())) / len(probability)
