"""The paper's Pre-LN transformer, top to bottom (Sections 2 and 3.1, Equations 1 and 2).

Both implementations of the paper and all four configurations are one class: `tie_weights` and
`attention` tell the implementations apart, the numbers `attn_skip` and `ffn_skip` the
configurations. A skip of 1 keeps the connection, 0 removes it.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resablate import ops, rng
from resablate.dropout import Masks
from resablate.ops import DTYPES
from resablate.params import Run

ATTENTIONS = {"sdpa": ops.causal_attention, "manual": ops.manual_attention}


class Output(NamedTuple):
    """Of one forward pass over (B, T) tokens."""

    logits: Tensor  # (B, T, vocab_size), float32
    hidden: list[Tensor]  # n_layer + 1 of (B, T, n_embd): the embedding's and each block's output


class Linear(nn.Module):
    """A linear layer, computed in the run's dtype; weights stay float32."""

    def __init__(self, run: Run, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        self.bias = nn.Parameter(torch.empty(n_out)) if run.bias else None
        self.dtype = DTYPES[run.dtype]

    def forward(self, x: Tensor) -> Tensor:
        return ops.linear(x, self.weight, self.bias, self.dtype)


class LayerNorm(nn.Module):
    """LayerNorm over the last axis, in float32."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(run.n_embd))
        self.bias = nn.Parameter(torch.empty(run.n_embd)) if run.bias else None
        self.eps = run.layer_norm_eps

    def forward(self, x: Tensor) -> Tensor:
        return ops.layer_norm(x, self.weight, self.bias, self.eps)


class Attention(nn.Module):
    """Causal multi-head self-attention (Equation 5)."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.qkv = Linear(run, run.n_embd, 3 * run.n_embd)
        self.proj = Linear(run, run.n_embd, run.n_embd)
        self.n_head = run.n_head
        self.attend = ATTENTIONS[run.attention]

    def forward(self, x: Tensor, masks: Masks | None) -> Tensor:
        qkv = self.qkv(x)  # (B, T, 3 C)
        keeps, inverse = None, 1.0
        if masks:
            keeps, inverse = masks.attention(), masks.inverse
        y = self.attend(qkv, self.n_head, keeps, inverse)
        return self.proj(y)


class FFN(nn.Module):
    """Position-wise feed-forward network with the exact GELU (Equation 4)."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.up = Linear(run, run.n_embd, 4 * run.n_embd)
        self.down = Linear(run, 4 * run.n_embd, run.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """Equations 1 and 2, with a factor on each skip."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.ln_1, self.attn = LayerNorm(run), Attention(run)
        self.ln_2, self.ffn = LayerNorm(run), FFN(run)
        self.attn_skip, self.ffn_skip = run.attn_skip, run.ffn_skip

    def forward(self, x: Tensor, masks: Masks | None) -> Tensor:
        x = _add(self.attn_skip, x, self.attn(self.ln_1(x), masks), masks)
        return _add(self.ffn_skip, x, self.ffn(self.ln_2(x)), masks)


def _add(skip: float, x: Tensor, y: Tensor, masks: Masks | None) -> Tensor:
    """Return skip * x + y in float32, with y under dropout while training."""
    y = y.float()
    if skip == 0.0:
        return y * masks.hidden() if masks else y
    kept = x if skip == 1.0 else skip * x
    return torch.addcmul(kept, y, masks.hidden()) if masks else kept + y


class GPT(nn.Module):
    """Token and position embeddings, n_layer blocks, a last LayerNorm and the head."""

    def __init__(self, run: Run, vocab_size: int) -> None:
        super().__init__()
        self.run = run
        self.wte = nn.Parameter(torch.empty(vocab_size, run.n_embd))
        self.wpe = nn.Parameter(torch.empty(run.block_size, run.n_embd))
        self.blocks = nn.ModuleList(Block(run) for _ in range(run.n_layer))
        self.ln_f = LayerNorm(run)
        self.head = None if run.tie_weights else nn.Parameter(torch.empty(vocab_size, run.n_embd))

    @torch.no_grad()
    def init(self, seed: int) -> None:
        """Draw the weights from the run's own stream, each matrix by its name.

        | parameter                     | distribution                                         |
        |-------------------------------|------------------------------------------------------|
        | matrices and embeddings       | N(0, init_std)                                       |
        | attn.proj.weight, ffn.down.weight | the same, / sqrt(2 n_layer) if scale_residual_init |
        | LayerNorm weights             | 1                                                    |
        | biases                        | 0                                                    |
        """
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            std = self.run.init_std
            if self.run.scale_residual_init and name.endswith(("proj.weight", "down.weight")):
                std /= math.sqrt(2 * self.run.n_layer)
            parameter.copy_(torch.from_numpy(rng.normal(seed, name, tuple(parameter.shape)) * std))

    def forward(self, tokens: Tensor, masks: Masks | None = None) -> Output:
        """Return logits and hidden states; with `masks`, under dropout.

        tokens: (B, T) int64, T <= block_size.
        """
        x = F.embedding(tokens, self.wte) + self.wpe[: tokens.shape[1]]
        x = x * masks.hidden() if masks else x
        hidden = [x]
        for block in self.blocks:
            x = block(x, masks)
            hidden.append(x)
        weight = self.wte if self.head is None else self.head
        logits = ops.linear(self.ln_f(x), weight, None, DTYPES[self.run.dtype])
        return Output(logits.float(), hidden)

    def loss(
        self,
        tokens: Tensor,
        targets: Tensor,
        masks: Masks | None = None,
        show: Callable[[Mapping[str, Tensor]], None] | None = None,
    ) -> Tensor:
        """Return the mean cross-entropy, nats per token, of targets (B, T).

        show: is called with the hidden states by name, before they can be freed.
        """
        logits, (embedding, *blocks) = self(tokens, masks)
        if show:
            show({"embedding": embedding} | {f"blocks.{i}": x for i, x in enumerate(blocks)})
        del embedding, blocks
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
