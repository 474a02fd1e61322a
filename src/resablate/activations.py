"""GELU and the sigmoid with the same bits for any number of threads.

PyTorch's element-wise kernels have vector code and, for what is left at the end of a thread's
share, scalar code that differs in the last bit of some elements: the split among threads decides
which of the two an element meets. Parts below the size from which a kernel shares its work are
never split, and end where the vectors do.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

PART = 1 << 14  # elements; PyTorch shares from 2^15 (GELU: from 2^14 + 1) on


def in_parts(kernel: Callable[..., object], out: Tensor, *inputs: Tensor) -> Tensor:
    """Return `out` (contiguous) filled by kernel(part of out, part of each contiguous input)."""
    if out.device.type != "cpu" or torch.get_num_threads() == 1:
        kernel(out, *inputs)
        return out
    flat = [x.view(-1).split(PART) for x in (out, *inputs)]
    for parts in zip(*flat, strict=True):
        kernel(*parts)
    return out


class _GELU(Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        return in_parts(lambda y, x: torch.ops.aten.gelu.out(x, out=y), torch.empty_like(x), x)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        def kernel(out, grad, x):
            torch.ops.aten.gelu_backward.grad_input(grad, x, grad_input=out)

        (x,) = ctx.saved_tensors
        return in_parts(kernel, torch.empty_like(x), grad.contiguous(), x)


def gelu(x: Tensor) -> Tensor:
    """Return the exact GELU, x * Phi(x)."""
    # oneDNN's kernel, where it is allowed, has vector code only.
    by_onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    return F.gelu(x) if x.device.type != "cpu" or by_onednn else _GELU.apply(x)


class _Sigmoid(Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = in_parts(lambda y, x: torch.sigmoid(x, out=y), torch.empty_like(x), x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * y * (1.0 - y)


def sigmoid(x: Tensor) -> Tensor:
    """Return 1 / (1 + exp(-x))."""
    return _Sigmoid.apply(x)
