"""Counter-based random streams: a pure function of (seed, purpose, position).

Philox4x64-10 (Salmon et al. 2011; numpy's), keyed by (seed, purpose) and with the position in
the counter: the same bits on every machine, device and thread count, in any order of asking.
No stream disturbs another, and a resumed run needs no generator's state.
"""

import zlib
from enum import IntEnum

import numpy as np

WORDS_PER_BLOCK = 4  # 64-bit words that one counter value yields
DRAWS_PER_BLOCK = 4 * WORDS_PER_BLOCK  # 16-bit draws of `mask`
CHUNK = DRAWS_PER_BLOCK << 13  # draws at a time: what fits into a core's cache


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


def orthogonal(seed: int, name: str, shape: tuple[int, int]) -> np.ndarray:
    """Return a uniform matrix with orthonormal rows or columns, float32, for a parameter.

    Gram-Schmidt in float64, twice, without BLAS, whose sums depend on the processor.
    """
    tall = normal(seed, name, shape).astype(np.float64)
    rows = tall if shape[0] <= shape[1] else tall.T.copy()
    for i in range(len(rows)):
        for _ in range(2):
            rows[i] -= ((rows[:i] * rows[i]).sum(1)[:, None] * rows[:i]).sum(0)
        rows[i] /= np.sqrt((rows[i] * rows[i]).sum())
    return (rows if shape[0] <= shape[1] else rows.T).astype(np.float32)


def mask(
    seed: int, n: int, rate: float, at: tuple[int, int], kept: np.unsignedinteger
) -> np.ndarray:
    """Return n words: 0 with probability `rate`, else `kept`, at a position of the dropout stream.

    `kept` may be the bit pattern of a float, which saves a conversion. The rate is realised as a
    multiple of 2**-16, which `realised` gives.
    """
    out = np.empty(n, dtype=kept.dtype)
    threshold = np.uint16(round(rate * 65536))
    for start in range(0, n, CHUNK):
        count = min(CHUNK, n - start)
        counter = [start // DRAWS_PER_BLOCK, *at, 0]
        philox = np.random.Philox(key=[seed, Purpose.DROPOUT], counter=counter)
        # Unlike random_raw, a full-range draw of integers releases the interpreter's lock.
        raw = np.random.Generator(philox).integers(0, 2**64, -(-count // 4), dtype=np.uint64)
        keep = raw.view("<u2")[:count] >= threshold
        np.multiply(keep.view(np.uint8), kept, out=out[start : start + count])
    return out


def realised(rate: float) -> float:
    """Return the probability that `mask` really uses for `rate`."""
    return round(rate * 65536) / 65536
