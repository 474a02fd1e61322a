"""Counter-based random streams: a pure function of (seed, purpose, position).

Philox4x64-10 (Salmon et al. 2011; numpy's), keyed by (seed, purpose) and with the position in
the counter: the same bits on every machine, device and thread count, in any order of asking.
No stream disturbs another, and a resumed run needs no generator's state.
"""

import zlib
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from functools import cache

import numpy as np

WORDS_PER_BLOCK = 4  # 64-bit words that one counter value yields
DRAWS_PER_BLOCK = 4 * WORDS_PER_BLOCK  # 16-bit draws of `keep`
MIN_SHARED = 1 << 17  # draws below which sharing them among threads costs more than it saves


class Purpose(IntEnum):
    """What a stream is for; the second half of the key."""

    INIT = 1
    DATA = 2
    DROPOUT = 3
    EVALUATION = 4


def words(seed: int, purpose: Purpose, n: int, at: tuple[int, int, int] = (0, 0, 0)) -> np.ndarray:
    """Return n uint64 words at a position of a stream."""
    return np.random.Philox(key=[seed, purpose], counter=[0, *at]).random_raw(n)


def integers(
    seed: int, purpose: Purpose, n: int, high: int, at: tuple[int, int, int] = (0, 0, 0)
) -> np.ndarray:
    """Return n int64 integers in [0, high), high < 2**32; their bias is below high / 2**32."""
    raw = words(seed, purpose, n, at) >> np.uint64(32)
    return ((raw * np.uint64(high)) >> np.uint64(32)).astype(np.int64)


def normal(seed: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return standard normal float32 numbers for the parameter `name`.

    Each parameter has its own position, so that adding one leaves the others' numbers alone.
    Drawn in float64, so that a last-bit difference between C libraries rounds away.
    """
    at = zlib.crc32(name.encode())
    philox = np.random.Philox(key=[seed, Purpose.INIT], counter=[0, at, 0, 0])
    return np.random.Generator(philox).standard_normal(shape).astype(np.float32)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


def keep(seed: int, n: int, rate: float, at: tuple[int, int], threads: int = 1) -> np.ndarray:
    """Return n booleans, False with probability `rate`, at a position of the dropout stream.

    `rate` is realised as a multiple of 2**-16, which `realised` gives. The threads share the
    work; the bits do not depend on them.
    """
    out = np.empty(n, dtype=bool)
    threshold = np.uint16(round(rate * 65536))
    share = -(-n // (threads * DRAWS_PER_BLOCK)) * DRAWS_PER_BLOCK

    def fill(start: int) -> None:
        count = min(share, n - start)
        generator = np.random.Generator(
            np.random.Philox(
                key=[seed, Purpose.DROPOUT], counter=[start // DRAWS_PER_BLOCK, *at, 0]
            )
        )
        # Unlike random_raw, a full-range draw of integers releases the interpreter's lock.
        raw = generator.integers(0, 2**64, -(-count // 4), dtype=np.uint64)
        np.greater_equal(raw.view("<u2")[:count], threshold, out=out[start : start + count])

    starts = range(0, n, share)
    if n < MIN_SHARED or len(starts) == 1:
        for start in starts:
            fill(start)
    else:
        list(_pool(threads).map(fill, starts))
    return out


def realised(rate: float) -> float:
    """Return the probability that `keep` really uses for `rate`."""
    return round(rate * 65536) / 65536
