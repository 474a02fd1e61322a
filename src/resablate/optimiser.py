"""AdamW (Loshchilov & Hutter 2019) in PyTorch's fused kernel, clipping included: one pass a step.

And, as a control, SGD with momentum, which unlike AdamW feels the scale of a gradient.

The arithmetic is that of torch.optim.AdamW(fused=True), which a test compares bit by bit. Calling
the kernel directly leaves out what that class imports (over a second) and does at every step.
"""

import torch
from torch import Tensor

from resablate.model import GPT
from resablate.params import Run


class AdamW:
    """First and second moments by parameter name; weight decay on 2-D tensors only."""

    def __init__(self, model: GPT, run: Run) -> None:
        self.run = run
        self.parameters = dict(model.named_parameters())  # a tied matrix is there once
        self.exp_avg = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.exp_avg_sq = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        decayed = [name for name, p in self.parameters.items() if p.dim() >= 2]
        others = [name for name, p in self.parameters.items() if p.dim() < 2]
        self.groups = [(run.weight_decay, decayed), (0.0, others)]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, n: int, lr: float, divisor: Tensor) -> None:
        """Make update number n (from 1) at rate `lr` with the gradients divided by `divisor`.

        divisor: a scalar on the parameters' device. The gradients are left divided.
        """
        count = torch.full_like(divisor, n)
        for weight_decay, names in self.groups:
            parameters = [self.parameters[name] for name in names]
            torch._fused_adamw_(
                parameters,
                [p.grad for p in parameters],
                [self.exp_avg[name] for name in names],
                [self.exp_avg_sq[name] for name in names],
                [],
                [count] * len(names),
                lr=lr,
                beta1=self.run.beta1,
                beta2=self.run.beta2,
                weight_decay=weight_decay,
                eps=self.run.adam_eps,
                amsgrad=False,
                maximize=False,
                grad_scale=divisor,
            )


class SGD(AdamW):
    """Momentum beta1 (p <- p - lr m with m <- beta1 m + g) and AdamW's decoupled weight decay."""

    def __init__(self, model: GPT, run: Run) -> None:
        super().__init__(model, run)
        self.exp_avg_sq = {}  # there is no second moment

    @torch.no_grad()
    def step(self, n: int, lr: float, divisor: Tensor) -> None:
        """Make an update as `AdamW.step` does."""
        for weight_decay, names in self.groups:
            for name in names:
                parameter, momentum = self.parameters[name], self.exp_avg[name]
                momentum.mul_(self.run.beta1).add_(parameter.grad.div_(divisor))
                parameter.mul_(1.0 - lr * weight_decay).sub_(lr * momentum)


OPTIMISERS = {"adamw": AdamW, "sgd": SGD}
