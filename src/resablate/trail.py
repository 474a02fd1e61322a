"""The trail of a run: a hash chain over its tensors, so that two runs can be compared bit by bit.

At each step of the curve, in causal order, a line per tensor: `weights` (after so many updates),
`data` (the step's batch), `forward` (hidden states under dropout, of the last micro-batch, and the
loss) and `backward` (gradients before clipping). A last line, `end`, closes the chain.
`python -m resablate diverge` reads it.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:  # the reader of a trail needs no PyTorch, whose import takes a second
    from torch import Tensor

CHUNK = 1 << 16  # elements at a time: stays in a core's cache
WORD = 2**64
_INDEX = np.arange(CHUNK, dtype=np.uint64)
_SQUARE = _INDEX * _INDEX


class Line(NamedTuple):
    """A fingerprint, as it stands in the file.

    shape: `16x64`, empty for a scalar; hash: of shape, dtype and bytes, or a scalar's value as a
    hex float; sums: of `ordered` values, of index x value and of index^2 x value, modulo 2^64;
    chain: hash of the chain before this line and of all that stands before it on this line.
    """

    step: str
    phase: str
    tensor: str
    shape: str
    hash: str
    sum: str
    index_sum: str
    square_sum: str
    chain: str


HEADER = ",".join(Line._fields)


def ordered(values: np.ndarray) -> np.ndarray:
    """Return float32 values as integers in the floats' order, neighbours 1 (an ulp) apart.

    Integers stay as they are. -0.0 is -1, so that values with different bits differ.
    """
    if values.dtype != np.float32:
        return values
    bits = values.view(np.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def sums(values: np.ndarray) -> tuple[int, int, int]:
    """Return the sums of v, i v and i^2 v over elements i with `ordered` values v, modulo 2^64.

    Integers, hence exact in any order. Where two arrays differ in element e alone, by u ulps, their
    sums differ by u, u e and u e^2: that names both.
    """
    flat, totals = values.reshape(-1), [0, 0, 0]
    for start in range(0, flat.size, CHUNK):
        part = ordered(flat[start : start + CHUNK]).astype(np.int64).view(np.uint64)
        n = part.size
        s, i, ii = int(part.sum()), int(part @ _INDEX[:n]), int(part @ _SQUARE[:n])
        totals[0] += s
        totals[1] += i + start * s
        totals[2] += ii + 2 * start * i + start * start * s
    return totals[0] % WORD, totals[1] % WORD, totals[2] % WORD


def digest(*parts: bytes | np.ndarray) -> str:
    """Return the 64-bit BLAKE2b hash of parts, 16 hex digits."""
    total = hashlib.blake2b(digest_size=8)
    for part in parts:
        total.update(part)
    return total.hexdigest()


def chained(previous: str, line: str) -> str:
    """Return the chain after a line (without its own chain)."""
    return digest(f"{previous}\n{line}".encode())


class Trail:
    """The lines of a run so far; text, so that the resumable state can hold them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, step: int, phase: str, tensors: Mapping[str, Tensor]) -> None:
        """Fingerprint tensors (float32 or int64, on any device) of a phase of a step."""
        for name, tensor in tensors.items():
            values = tensor.detach().cpu().contiguous().numpy()
            shape = "x".join(map(str, tensor.shape))
            if shape:
                hashed = digest(f"{values.dtype.str} {shape}\n".encode(), values.reshape(-1).data)
            else:
                hashed = values.item().hex()
            self._append(step, phase, name, shape, hashed, *sums(values))

    def _append(self, *fields: object) -> None:
        line = ",".join(map(str, fields))
        self.lines.append(f"{line},{chained(_chain(self.lines), line)}")

    def text(self, step: int, status: str) -> str:
        """Return the file of a run that ended after `step` updates as finished or diverged."""
        line = f"{step},end,{status},,,,,"
        return "\n".join([HEADER, *self.lines, f"{line},{chained(_chain(self.lines), line)}", ""])


def _chain(lines: list[str]) -> str:
    return lines[-1].rpartition(",")[2] if lines else ""


class BrokenError(Exception):
    """The chain does not hold; the message names the line."""


def parse(text: str) -> list[Line]:
    """Return the lines of a trail's file; BrokenError if it has been edited or cut."""
    header, _, rest = text.partition("\n")
    if header != HEADER:
        raise BrokenError(f"line 1 is not {HEADER}")
    chain, lines = "", rest.splitlines()
    for number, line in enumerate(lines, 2):
        body, _, after = line.rpartition(",")
        if after != chained(chain, body):
            raise BrokenError(f"line {number} or the one before it was edited or removed: {body}")
        chain = after
    found = [Line(*fields) for fields in csv.reader(io.StringIO("\n".join(lines)))]
    if not found or found[-1].phase != "end":
        raise BrokenError(f"line {len(lines) + 1} is not the trail's end: lines were removed")
    return found
