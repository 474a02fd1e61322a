"""The kernels under the exact step: linear, LayerNorm, causal attention and dropout masks.

Each gives the same bits for any number of threads. On a CPU PyTorch's own way is slow in three
places, which are replaced here:

- float32 matrix products go to MKL, which takes an AVX2 path on processors that are not Intel's and
  whose narrow products depend on the thread count. `linear_kernel` states the rule used instead.
- `bernoulli_` is serial. Masks come from `rng.keep`, the run's own counter-based stream.
- attention with dropout falls to a path with several T x T copies. `causal_attention` works in
  blocks of queries, leaves out what lies above the diagonal and keeps two arrays for the backward.

On other devices the same functions are built from PyTorch's own operators.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from resablate import numerics

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
QUERY_BLOCK = 64  # queries that attention handles at a time; also the layout of its dropout masks


@cache
def linear_kernel() -> str:
    """Return which library multiplies matrices in linear layers on this CPU: onednn or mkl.

    The rule: oneDNN wherever PyTorch has it and the CPU has AVX2 or better, whatever the vendor.
    MKL is as fast on Intel's only, and its sums depend on the thread count there too.
    """
    has_avx2 = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    return "onednn" if torch.backends.mkldnn.is_available() and has_avx2 else "mkl"


def _product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a @ b.T + bias for a (M, K), b (N, K) and bias (N,)."""
    if a.device.type == "cpu" and linear_kernel() == "onednn":
        return torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return F.linear(a, b, bias)


def _weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """Return grad.T @ x (N, K), float32, for grad (M, N) and x (M, K)."""
    if grad.dtype != torch.float32:
        return (grad.t() @ x).float()  # low precision goes to oneDNN by itself
    if grad.shape[1] > x.shape[1]:  # oneDNN is faster with the wider operand on the right
        return _sum_over_rows(x, grad).t().contiguous()
    return _sum_over_rows(grad, x)


def _sum_over_rows(a: Tensor, b: Tensor) -> Tensor:
    """Return a.T @ b for a (M, N) and b (M, K); if numerics are pinned, in parts of M."""
    if not numerics.is_pinned():
        return _product(a.t(), b.t())
    first, *others = zip(a.split(numerics.ROWS), b.split(numerics.ROWS), strict=True)
    total = _product(first[0].t(), first[1].t())
    for rows, columns in others:
        total = torch.ops.mkldnn._linear_pointwise.binary(rows.t(), total, columns.t(), None, "add")
    return total


def _bias_gradient(grad: Tensor) -> Tensor:
    """Return the sum over rows of grad (M, N), float32."""
    if grad.dtype == torch.float32:
        return grad.sum(0)
    ones = torch.ones(1, len(grad), dtype=grad.dtype, device=grad.device)
    return (ones @ grad)[0].float()  # a reduction in low precision is ten times as slow


class _Linear(Function):
    """Forward, dX and dW through `_product`, which has no autograd of its own."""

    @staticmethod
    def forward(ctx, x, weight, bias, dtype):
        flat, cast = x.reshape(-1, x.shape[-1]).to(dtype), weight.to(dtype)
        ctx.save_for_backward(flat, cast)
        ctx.x_dtype, ctx.has_bias = x.dtype, bias is not None
        out = _product(flat, cast, None if bias is None else bias.to(dtype))
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        flat = grad.reshape(-1, grad.shape[-1]).to(x.dtype)
        grad_x = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = _product(flat, weight.t()).to(ctx.x_dtype).view(*grad.shape[:-1], -1)
        grad_weight = _weight_gradient(flat, x)
        if ctx.has_bias:
            grad_bias = _bias_gradient(flat)
        return grad_x, grad_weight, grad_bias, None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return x @ weight.T + bias, computed in `dtype`: (..., K), (N, K), (N,) -> (..., N)."""
    return _Linear.apply(x, weight, bias, dtype)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on this thread alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _LayerNorm(Function):
    """LayerNorm whose parameter gradients are summed over rows in their order, by one thread.

    PyTorch's backward gives each thread a share of the rows and adds the shares. Its kernel is
    bound by memory and reads each array once: on one thread it takes less time than separate
    products and sums do on all of them.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        out, mean, rstd = torch.native_layer_norm(x, weight.shape, weight, bias, eps)
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight, bias, mean, rstd = ctx.saved_tensors
        arguments = (grad.contiguous(), x, weight.shape, mean, rstd, weight, bias)
        backward = torch.ops.aten.native_layer_norm_backward
        grad_x, _, _ = backward(*arguments, [True, False, False])
        with _one_thread():
            _, grad_weight, grad_bias = backward(*arguments, [False, True, bias is not None])
        return grad_x, grad_weight, grad_bias, None


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Return LayerNorm over the last axis of x (..., C)."""
    return _LayerNorm.apply(x, weight, bias, eps)


def query_blocks(T: int) -> Iterator[tuple[int, int]]:
    """Yield (first, end) of each block of queries; block rows see keys 0 .. end - 1."""
    for first in range(0, T, QUERY_BLOCK):
        yield first, min(first + QUERY_BLOCK, T)


@cache
def _causal_bias(first: int, end: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return (end - first, end): 0 where query first + i may see key j <= first + i, else -inf."""
    shape = (end - first, end)
    return torch.full(shape, -math.inf, dtype=dtype, device=device).triu_(first + 1)


def split_heads(qkv: Tensor, n_head: int) -> Tensor:
    """Return (B, T, 3 C) as a new (3, B n_head, T, C / n_head): queries, keys and values."""
    B, T, width = qkv.shape
    heads = qkv.view(B, T, 3, n_head, width // (3 * n_head))
    return heads.permute(2, 0, 3, 1, 4).reshape(3, B * n_head, T, -1)


def merge_heads(y: Tensor, n_head: int) -> Tensor:
    """Return (B n_head, T, D) as (B, T, n_head D)."""
    N, T, D = y.shape
    return y.view(N // n_head, n_head, T, D).transpose(1, 2).reshape(N // n_head, T, n_head * D)


class _CausalAttention(Function):
    """Attention a block of queries at a time; saves each block's weights and mask."""

    @staticmethod
    def forward(ctx, qkv, n_head, keeps, inverse):
        q, k, v = split_heads(qkv, n_head)
        q *= 1.0 / math.sqrt(q.shape[-1])
        v *= inverse
        out, saved = torch.empty_like(q), []
        for i, (first, end) in enumerate(query_blocks(q.shape[1])):
            rows = q[:, first:end].contiguous()
            bias = _causal_bias(first, end, q.dtype, q.device)
            weight = torch.softmax(torch.baddbmm(bias, rows, k[:, :end].transpose(1, 2)), -1)
            saved += [rows, weight]
            kept = weight if keeps is None else weight * keeps[i]
            out[:, first:end] = torch.bmm(kept, v[:, :end])
        ctx.save_for_backward(k, v, *saved)
        ctx.n_head, ctx.keeps, ctx.inverse = n_head, keeps, inverse
        return merge_heads(out, n_head)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        k, v, *saved = ctx.saved_tensors
        B, T, C = grad.shape
        packed = torch.empty(3, *k.shape, dtype=k.dtype, device=k.device)
        grad_q, grad_k, grad_v = packed
        grad = grad.view(B, T, ctx.n_head, -1).transpose(1, 2).reshape(k.shape)
        blocks = list(query_blocks(T))
        for i, (first, end) in reversed(list(enumerate(blocks))):  # the last sees every key
            q, weight = saved[2 * i : 2 * i + 2]
            rows = grad[:, first:end].contiguous()
            grad_weight = torch.bmm(rows, v[:, :end].transpose(1, 2))
            kept = weight
            if ctx.keeps is not None:
                kept = weight * ctx.keeps[i]
                grad_weight *= ctx.keeps[i]
            scores = torch.ops.aten._softmax_backward_data(grad_weight, weight, -1, weight.dtype)
            grad_q[:, first:end] = torch.bmm(scores, k[:, :end])
            if end == T:
                torch.bmm(kept.transpose(1, 2), rows, out=grad_v)
                torch.bmm(scores.transpose(1, 2), q, out=grad_k)
            else:
                grad_v[:, :end] += torch.bmm(kept.transpose(1, 2), rows)
                grad_k[:, :end] += torch.bmm(scores.transpose(1, 2), q)
        grad_q *= 1.0 / math.sqrt(k.shape[-1])
        grad_v *= ctx.inverse
        packed = packed.view(3, B, ctx.n_head, T, -1).permute(1, 3, 0, 2, 4)
        return packed.reshape(B, T, 3 * C), None, None, None


def causal_attention(
    qkv: Tensor, n_head: int, keeps: list[Tensor] | None, inverse: float
) -> Tensor:
    """Return softmax(q k.T / sqrt(D)) v for packed (B, T, 3 C), causal: (B, T, C).

    keeps: for dropout, for each of `query_blocks(T)` a 0/1 mask (B n_head, rows, end) of the
    attention weights; inverse: 1 / (1 - rate).
    """
    if keeps is None and qkv.device.type != "cpu":
        q, k, v = split_heads(qkv, n_head)
        return merge_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True), n_head)
    return _CausalAttention.apply(qkv, n_head, keeps, inverse)


@cache
def _pattern(name: str, T: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return (T, T): 0 where a query may see a key, else -inf.

    diagonal: its own position only; strict: earlier ones only, but for the first token, which has
    none and keeps its own; others: causal.
    """
    bias = _causal_bias(0, T, dtype, device)
    own = torch.zeros(T, dtype=dtype, device=device)
    if name == "diagonal":
        return torch.full_like(bias, -math.inf).diagonal_scatter(own)
    if name == "strict":
        own[1:] = -math.inf
        return bias.diagonal_scatter(own)
    return bias


def attention_weights(q: Tensor, k: Tensor, pattern: str = "causal") -> Tensor:
    """Return the softmax over keys (N, T, T) for queries and keys (N, T, D)."""
    bias = _pattern(pattern, q.shape[1], q.dtype, q.device)
    scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=1.0 / math.sqrt(q.shape[-1]))
    return torch.softmax(scores, -1)


def manual_attention(
    qkv: Tensor,
    n_head: int,
    keeps: list[Tensor] | None,
    inverse: float,
    pattern: str = "causal",
) -> Tensor:
    """Return what `causal_attention` does by the textbook: full T x T scores and a mask."""
    q, k, v = split_heads(qkv, n_head)
    weight = attention_weights(q, k, pattern)
    if keeps is not None:
        weight = weight * _whole(keeps, q.shape[1])
    return merge_heads(torch.bmm(weight, v) * inverse, n_head)


def _whole(keeps: list[Tensor], T: int) -> Tensor:
    """Return the blocks of a mask as one (N, T, T), with zeros above the diagonal's blocks."""
    if len(keeps) == 1:
        return keeps[0]
    return torch.cat([F.pad(keep, (0, T - keep.shape[-1])) for keep in keeps], dim=1)
