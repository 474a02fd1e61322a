"""Dropout masks of one forward pass, from the run's own stream: the same bits on every device."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from resablate import rng
from resablate.ops import DTYPES, query_blocks
from resablate.params import Run

# Philox4x64-10's multipliers and key increments (Salmon et al. 2011, Table 2), as signed int64.
_M0, _M1 = 0xD2E7470EE14C6C93 - 2**64, 0xCA5A826395121157 - 2**64
_W0, _W1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_LOW = 0xFFFFFFFF
BITS = {torch.float32: torch.uint32, torch.bfloat16: torch.uint16}


class Site(NamedTuple):
    """One place of a forward pass where dropout acts: n elements, 0 or `kept`, in `dtype`."""

    n: int
    kept: float
    dtype: torch.dtype


class Masks:
    """The masks of one forward pass, drawn at once and handed out in the pass's order.

    `position` numbers the passes of a run: update x accumulation + micro-batch. Drawing them
    while nothing else runs lets `threads` share the work: between PyTorch's own operators its
    waiting threads would be in the way.
    """

    def __init__(
        self, run: Run, seed: int, position: int, device: torch.device, threads: int = 1
    ) -> None:
        self.run, self.seed, self.position, self.device = run, seed, position, device
        self.inverse = 1.0 / (1.0 - rng.realised(run.dropout))
        numbered = list(enumerate(self._sites()))
        if device.type == "cpu" and threads > 1:
            drawn = _pool(threads).map(lambda pair: self._draw(*pair), numbered)
        else:
            drawn = (self._draw(*pair) for pair in numbered)
        self._masks = iter(list(drawn))

    def _sites(self) -> list[Site]:
        """Return the embedding's site, then each block's: weights, mixer's and FFN's output."""
        run = self.run
        hidden = Site(run.batch_size * run.block_size * run.n_embd, self.inverse, torch.float32)
        weights = Site(sum(map(prod, self._weight_shapes())), 1.0, DTYPES[run.dtype])
        of_block = [hidden, hidden] if run.mixer != "attention" else [weights, hidden, hidden]
        return [hidden] + of_block * run.n_layer

    def _weight_shapes(self) -> list[tuple[int, int, int]]:
        n = self.run.batch_size * self.run.n_head
        return [(n, end - first, end) for first, end in query_blocks(self.run.block_size)]

    def _draw(self, index: int, site: Site) -> Tensor:
        at = (index, self.position)
        if self.device.type != "cpu":
            keep = keep_on_device(self.seed, site.n, self.run.dropout, at, self.device)
            return keep.to(site.dtype).mul_(site.kept)
        bits = torch.tensor([site.kept], dtype=site.dtype).view(BITS[site.dtype]).numpy()[0]
        words = rng.mask(self.seed, site.n, self.run.dropout, at, bits)
        return torch.from_numpy(words).view(site.dtype)

    def hidden(self) -> Tensor:
        """Return a float32 mask (B, T, C) of hidden states: 0, or 1 / (probability of keeping)."""
        run = self.run
        return next(self._masks).view(run.batch_size, run.block_size, run.n_embd)

    def attention(self) -> list[Tensor]:
        """Return for each block of queries a 0/1 mask (B n_head, rows, end) of its weights."""
        shapes = self._weight_shapes()
        parts = next(self._masks).split([prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


def _high(a: Tensor, b: int) -> Tensor:
    """Return the upper 64 bits of the unsigned product of int64 a and the constant b."""
    a0, a1 = a & _LOW, (a >> 32) & _LOW
    b0, b1 = b & _LOW, (b >> 32) & _LOW
    low, mid1, mid2 = a0 * b0, a0 * b1, a1 * b0
    carry = ((low >> 32) & _LOW) + (mid1 & _LOW) + (mid2 & _LOW)
    return a1 * b1 + ((mid1 >> 32) & _LOW) + ((mid2 >> 32) & _LOW) + ((carry >> 32) & _LOW)


def _signed(word: int) -> int:
    """Return a 64-bit word as the int64 with the same bits."""
    return (word + 2**63) % 2**64 - 2**63


def keep_on_device(
    seed: int, n: int, rate: float, at: tuple[int, int], device: torch.device
) -> Tensor:
    """Return where `rng.mask` keeps, computed by tensor operations on `device`."""
    blocks = -(-n // (4 * rng.WORDS_PER_BLOCK))
    # numpy's Philox increments its counter before the first block.
    c0 = torch.arange(1, blocks + 1, dtype=torch.int64, device=device)
    c1, c2, c3 = (torch.full_like(c0, word) for word in (*at, 0))
    k0, k1 = seed, int(rng.Purpose.DROPOUT)
    for _ in range(10):
        high0, low0, high1, low1 = _high(c0, _M0), c0 * _M0, _high(c2, _M1), c2 * _M1
        c0, c1, c2, c3 = high1 ^ c1 ^ _signed(k0), low1, high0 ^ c3 ^ _signed(k1), low0
        k0, k1 = (k0 + _W0) % 2**64, (k1 + _W1) % 2**64
    draws = torch.stack([c0, c1, c2, c3], dim=1).view(torch.int16).view(-1)[:n]
    return (draws.to(torch.int32) & 0xFFFF) >= round(rate * 65536)
