"""Dropout masks of one forward pass, from the run's own stream: the same bits on every device."""

from math import prod

import torch
from torch import Tensor

from resablate import rng
from resablate.ops import query_blocks

# Philox4x64-10's multipliers and key increments (Salmon et al. 2011, Table 2), as signed int64.
_M0, _M1 = 0xD2E7470EE14C6C93 - 2**64, 0xCA5A826395121157 - 2**64
_W0, _W1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_LOW = 0xFFFFFFFF


class Masks:
    """Masks in the order in which a forward pass asks for them; each is a site of the stream.

    `position` numbers the forward passes of a run: update x accumulation + micro-batch.
    """

    def __init__(
        self,
        seed: int,
        rate: float,
        position: int,
        device: torch.device,
        threads: int = 1,
    ) -> None:
        self.seed, self.rate, self.position = seed, rate, position
        self.device, self.threads = device, threads
        self.site = 0
        self.inverse = 1.0 / (1.0 - rng.realised(rate))

    def _keep(self, n: int) -> Tensor:
        """Return the next site's n booleans."""
        site, self.site = self.site, self.site + 1
        if self.device.type == "cpu":
            keep = rng.keep(self.seed, n, self.rate, (site, self.position), self.threads)
            return torch.from_numpy(keep)
        return keep_on_device(self.seed, n, self.rate, (site, self.position), self.device)

    def hidden(self, x: Tensor) -> Tensor:
        """Return x under dropout: each element 0 or divided by the probability of being kept."""
        return x * _as_float(self._keep(x.numel()), x.dtype).view(x.shape).mul_(self.inverse)

    def attention(self, n: int, T: int, dtype: torch.dtype) -> list[Tensor]:
        """Return for each block of queries a 0/1 mask (n, rows, end) of its attention weights."""
        shapes = [(n, end - first, end) for first, end in query_blocks(T)]
        keep = _as_float(self._keep(sum(map(prod, shapes))), dtype)
        return [
            part.view(s) for part, s in zip(keep.split([*map(prod, shapes)]), shapes, strict=True)
        ]


def _as_float(keep: Tensor, dtype: torch.dtype) -> Tensor:
    """Return booleans as 0 and 1; on a CPU by way of numpy, which is five times as fast."""
    if keep.device.type == "cpu":
        keep = torch.from_numpy(keep.numpy().astype("float32"))
    return keep.to(dtype)


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
    """Return `rng.keep` computed by tensor operations on `device`."""
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
