"""What the mixers beside plain attention compute: rotary positions, shaping, state spaces.

Built from PyTorch operators whose bits depend neither on the number of threads nor, with portable
numerics, on the processor.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from resablate import activations, ops

ROTARY_BASE = 10_000.0  # Su et al. 2021


def rotary_table(T: int, head_size: int) -> Tensor:
    """Return cosines and sines (2, T, 3, 1, head_size / 2) for packed queries, keys and values.

    Values are turned by an angle of 0.
    """
    rate = ROTARY_BASE ** (-np.arange(0, head_size, 2) / head_size)
    angle = np.arange(T)[:, None] * rate
    angles = np.stack([angle, angle, np.zeros_like(angle)], axis=1)[:, :, None]
    return torch.from_numpy(np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32))


def rotate(qkv: Tensor, n_head: int, table: Tensor) -> Tensor:
    """Turn the queries and keys of packed (B, T, 3 C) by their positions (Su et al. 2021)."""
    B, T, width = qkv.shape
    cos, sin = table[:, :T].to(qkv.dtype)
    first, second = qkv.view(B, T, 3, n_head, width // (3 * n_head)).chunk(2, dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.view(B, T, width)


def shaped(y: Tensor, qkv: Tensor, skip: Tensor, attend: Tensor, centre: Tensor) -> Tensor:
    """Return attend * y + skip * v - centre * (mean of the values so far), each factor a head's.

    Shaped attention (Noci et al. 2023; He & Hofmann 2024, Equation 4): with zero queries and
    factors of 1 it is the identity on values. y: attention's output (B, T, C); factors: (n_head,).
    """
    n_head = len(skip)
    v = ops.split_heads(qkv, n_head)[2]
    T = v.shape[1]
    average = torch.ones(T, T, dtype=v.dtype, device=v.device).tril_()
    average /= torch.arange(1, T + 1, dtype=v.dtype, device=v.device)[:, None]
    mean = ops.merge_heads(torch.bmm(average.expand(len(v), T, T), v), n_head)
    size = y.shape[-1] // n_head
    a, b, c = (factor.to(y.dtype).repeat_interleave(size) for factor in (attend, skip, centre))
    return a * y + b * qkv[..., -y.shape[-1] :] - c * mean


def log_spaced_decays(modes: int, block_size: int) -> Tensor:
    """Return logits (modes * modes) of decays per token, alike for each channel.

    The time constants go from 1 to block_size tokens in equal ratios.
    """
    steps = range(modes)
    taus = [block_size ** (m / max(1, modes - 1)) for m in steps]
    logits = [-math.log(math.expm1(1.0 / tau)) for tau in taus]  # logit of exp(-1 / tau)
    return torch.tensor(logits, dtype=torch.float32).repeat(modes)


def decaying(weight: Tensor, logit: Tensor, T: int) -> Tensor:
    """Return kernels (C, T): sum over modes of weight * sigmoid(logit)^j, for j = 0 .. T - 1.

    weight, logit: (C, modes). The powers are made by doubling, with products only.
    """
    factor = activations.sigmoid(logit)
    powers = torch.ones_like(factor)[..., None]  # (C, modes, 1), then 2, 4, 8 ...
    while powers.shape[-1] < T:
        powers = torch.cat([powers, powers * factor[..., None]], dim=-1)
        factor = factor.square()
    return torch.bmm(weight[:, None], powers[..., :T])[:, 0]


def causal_convolution(x: Tensor, kernel: Tensor) -> Tensor:
    """Return y_t = sum over s <= t of kernel_{t-s} x_s, channel by channel.

    x: (B, T, C) float32; kernel: (C, T).
    """
    T = x.shape[1]
    # Row t of a channel's (T, T) matrix is the reversed kernel from place T - 1 - t on.
    reversed_ = F.pad(kernel.flip(-1), (0, T - 1))
    matrix = reversed_.unfold(-1, T, 1).flip(-2)
    return torch.bmm(matrix, x.permute(2, 1, 0)).permute(2, 1, 0)
