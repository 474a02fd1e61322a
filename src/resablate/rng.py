"""Counter-based random streams: a pure function of (seed, purpose, position).

Philox4x64-10 (Salmon et al. 2011; numpy's), keyed by (seed, purpose) and with the position in
the counter: the same bits on every machine, device and thread count, in any order of asking.
No stream disturbs another, and a resumed run needs no generator's state.
"""

import zlib
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum

import numpy as np

WORDS_PER_BLOCK = 4  # 64-bit words that one counter value yields
CHUNK_BLOCKS = 1 << 14  # blocks that one thread draws at a time


class Purpose(IntEnum):
    """What a stream is for; the second half of the key."""

    INIT = 1
    DATA = 2
    DROPOUT = 3
    EVALUATION = 4
    PROBE = 5


def _generator(seed: int, purpose: Purpose, block: int, a: int, b: int, c: int) -> np.random.Philox:
    return np.random.Philox(key=[seed, int(purpose)], counter=[block, a, b, c])


def words(seed: int, purpose: Purpose, n: int, a: int = 0, b: int = 0, c: int = 0) -> np.ndarray:
    """Return n uint64 words at position (a, b, c) of a stream."""
    return _generator(seed, purpose, 0, a, b, c).random_raw(n)


def integers(seed: int, purpose: Purpose, n: int, high: int, a: int = 0, b: int = 0) -> np.ndarray:
    """Return n int64 integers in [0, high), high < 2**32, uniform to high / 2**32."""
    raw = words(seed, purpose, n, a, b) >> np.uint64(32)
    return ((raw * np.uint64(high)) >> np.uint64(32)).astype(np.int64)


def normal(seed: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return standard normal float32 numbers for the parameter `name`.

    Each parameter has its own position, so that adding one leaves the others' numbers alone.
    Drawn in float64, so that a last-bit difference between C libraries rounds away.
    """
    generator = np.random.Generator(
        _generator(seed, Purpose.INIT, 0, zlib.crc32(name.encode()), 0, 0)
    )
    return generator.standard_normal(shape).astype(np.float32)


def keep(
    seed: int,
    n: int,
    rate: float,
    a: int,
    b: int,
    pool: ThreadPoolExecutor | None = None,
) -> np.ndarray:
    """Return n booleans, False with probability `rate`, at position (a, b) of the dropout stream.

    The rate is realised as a multiple of 2**-16; `realised` gives it. With a pool, its threads
    share the work; the bits do not depend on it.
    """
    out = np.empty(n, dtype=bool)
    threshold = np.uint16(round(rate * 65536))
    chunk = CHUNK_BLOCKS * WORDS_PER_BLOCK * 4  # booleans: four 16-bit draws a word

    def fill(start: int) -> None:
        count = min(chunk, n - start)
        block = start // (WORDS_PER_BLOCK * 4)
        generator = np.random.Generator(_generator(seed, Purpose.DROPOUT, block, a, b, 0))
        # Generator.integers releases the GIL, and its full range is the raw words.
        raw = generator.integers(0, 2**64, -(-count // 4), dtype=np.uint64)
        np.greater_equal(raw.view("<u2")[:count], threshold, out=out[start : start + count])

    starts = range(0, n, chunk)
    if pool is None or len(starts) == 1:
        for start in starts:
            fill(start)
    else:
        list(pool.map(fill, starts))
    return out


def realised(rate: float) -> float:
    """Return the probability that `keep` really uses for `rate`."""
    return round(rate * 65536) / 65536
