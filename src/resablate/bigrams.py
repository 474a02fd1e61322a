"""The first two rungs of the n-gram ladder of a corpus that does not fit into memory.

The same numbers as resablate/ngrams.py, to rounding, from the token files read piece by piece.
Bigrams are counted by sorting them, a range of first tokens at a time, so that memory is that of
PASS_TOKENS bigrams (or of those after the most frequent token, if they are more), and of a few
arrays as long as the vocabulary or as the distinct bigrams of the validation split.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from resablate import ngrams
from resablate.prepare import TOKEN, Ladder, token_chunks

PASS_TOKENS = 1 << 25  # 134 MB to sort, 0.9 GB in all if no two of them are equal
CHUNK_TOKENS = 1 << 22  # read at once


class _Bigrams(NamedTuple):
    """What training's bigrams h w are, by h, by w, and by those that validation has."""

    of_count: np.ndarray  # [k]: how many occur k times, 5 standing for more
    after: np.ndarray  # [k, h]: how many distinct w follow h k times, 3 standing for more
    before: np.ndarray  # [w]: how many distinct h precede w
    total: np.ndarray  # [h]: how many tokens follow h
    in_val: np.ndarray  # count in training of each bigram of the validation split


def measure(folder: Path, vocab_size: int, order: int) -> Ladder:
    """Return the ladder of `order` 1 or 2 of a folder's train.bin and val.bin.

    vocab_size**2 must be below 2**32, as GPT-2's is.
    """
    train, val = folder / "train.bin", folder / "val.bin"
    counts, val_counts = (_counts(path, vocab_size) for path in (train, val))
    unigram, n_val = ngrams.unigram(counts), int(val_counts.sum())
    rungs = {1: _negative_log(unigram, val_counts) / n_val}
    if order > 1:
        keys, times = _distinct(val, vocab_size)
        probability = _interpolated(_count(train, counts, keys), keys, vocab_size)
        first = -math.log(unigram[np.fromfile(val, TOKEN, 1)[0]])  # which has no context
        rungs[2] = (first + _negative_log(probability, times)) / n_val
    return Ladder(ngrams.entropy_of(counts), rungs)


def _counts(path: Path, vocab_size: int) -> np.ndarray:
    return sum(
        (np.bincount(chunk, minlength=vocab_size) for chunk in token_chunks(path, CHUNK_TOKENS)),
        np.zeros(vocab_size, np.int64),
    )


def _keys(path: Path, vocab_size: int) -> Iterator[np.ndarray]:
    """Yield the bigrams of a file as h * vocab_size + w."""
    for chunk in token_chunks(path, CHUNK_TOKENS, overlap=1):
        yield chunk[:-1] * np.uint32(vocab_size) + chunk[1:]


def _distinct(path: Path, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a file's distinct bigrams, sorted, and how often each occurs."""
    keys, times = np.empty(0, np.uint32), np.empty(0, np.int64)
    for chunk in _keys(path, vocab_size):
        new, n = np.unique(chunk, return_counts=True)
        keys, place = np.unique(np.concatenate([keys, new]), return_inverse=True)
        times = np.bincount(place, weights=np.concatenate([times, n])).astype(np.int64)
    return keys, times


def _count(train: Path, counts: np.ndarray, val_keys: np.ndarray) -> _Bigrams:
    """Count training's bigrams, a range of first tokens at a time."""
    size = len(counts)
    found = _Bigrams(
        np.zeros(6, np.int64),
        np.zeros((4, size), np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(len(val_keys), np.int64),
    )
    for low, high in _ranges(counts):
        keys = np.empty(int(counts[low:high].sum()), np.uint32)
        filled = 0
        for chunk in _keys(train, size):
            chosen = chunk[(chunk >= low * size) & (chunk < high * size)]
            keys[filled : filled + len(chosen)] = chosen
            filled += len(chosen)
        _add(found, keys[:filled], val_keys)
    return found


def _ranges(counts: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the ranges of tokens that have at most PASS_TOKENS occurrences, or are one token."""
    low = total = 0
    for token, count in enumerate(counts.tolist()):
        if total and total + count > PASS_TOKENS:
            yield low, token
            low, total = token, 0
        total += count
    yield low, len(counts)


def _add(found: _Bigrams, keys: np.ndarray, val_keys: np.ndarray) -> None:
    """Add the bigrams of a range to what has been found; sorts `keys` in place."""
    if not len(keys):
        return
    keys.sort()
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    times = np.diff(starts, append=len(keys))
    grams, size = keys[starts], len(found.before)
    h, w = np.divmod(grams, np.uint32(size))
    found.of_count[:] += ngrams.counts_of_counts(times)
    for k in (1, 2, 3):
        chosen = h[times == k] if k < 3 else h[times >= k]
        found.after[k] += np.bincount(chosen, minlength=size)
    found.before[:] += np.bincount(w, minlength=size)
    found.total[:] += np.bincount(h, weights=times, minlength=size).astype(np.int64)
    place = np.minimum(np.searchsorted(grams, val_keys), len(grams) - 1)
    found.in_val[:] += np.where(grams[place] == val_keys, times[place], 0)


def _interpolated(found: _Bigrams, val_keys: np.ndarray, vocab_size: int) -> np.ndarray:
    """Return p(w | h) of each bigram of the validation split, as resablate/ngrams.py defines it."""
    discount = ngrams.discounts(ngrams.counts_of_counts(found.before))
    kept = found.before - discount[np.minimum(found.before, 3)]
    freed = found.before.sum() - kept.sum()
    lower = (kept + freed / vocab_size) / found.before.sum()

    discount = ngrams.discounts(found.of_count.tolist())
    h, w = np.divmod(val_keys, np.uint32(vocab_size))
    kept = found.in_val - discount[np.minimum(found.in_val, 3)]
    freed = discount @ found.after
    total = found.total[h]
    return np.where(total > 0, (kept + freed[h] * lower[w]) / np.maximum(total, 1), lower[w])


def _negative_log(probability: np.ndarray, times: np.ndarray) -> float:
    """Return the sum of -log p, each as many times as it occurs."""
    seen = times > 0
    logs = map(math.log, probability[seen].tolist())
    return -math.fsum(n * log for n, log in zip(times[seen].tolist(), logs, strict=True))
