"""The paper's Pre-LN transformer, top to bottom (Sections 2 and 3.1, Equations 1 and 2).

Both implementations of the paper and all four configurations are one class: `tie_weights` and
`attention` tell the implementations apart, the numbers `attn_skip` and `ffn_skip` the
configurations. A skip of 1 keeps the connection, 0 removes it. What the paper leaves open is a
named difference in the same class: `block`, `mixer`, `norm`, `ffn`, `position` and others.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resablate import activations, mixing, ops, rng
from resablate.dropout import Masks
from resablate.ops import DTYPES
from resablate.params import Run

CONV_WINDOW = 3  # tokens: with an output projection, as many parameters as attention has
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


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps), times a weight (Zhang & Sennrich 2019), in float32."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(run.n_embd))
        self.eps = run.layer_norm_eps

    def forward(self, x: Tensor) -> Tensor:
        square = x.square().mean(-1, keepdim=True) + self.eps
        # By way of float64, since the float32 root is the processor vendor's own.
        return x * square.double().rsqrt().float() * self.weight


NORMS = {"layernorm": LayerNorm, "rmsnorm": RMSNorm}


class Attention(nn.Module):
    """Causal multi-head self-attention (Equation 5)."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.qkv = Linear(run, run.n_embd, 3 * run.n_embd)
        self.proj = Linear(run, run.n_embd, run.n_embd)
        self.n_head, self.pattern = run.n_head, run.attention_pattern
        self.attend = ATTENTIONS[run.attention]
        if self.pattern != "causal":
            self.attend = partial(ops.manual_attention, pattern=self.pattern)
        if self.pattern == "shaped":
            self.shape = nn.ParameterList(torch.empty(run.n_head) for _ in range(3))
        self.share_values = run.value_residual
        if run.position == "rope":
            table = mixing.rotary_table(run.block_size, run.n_embd // run.n_head)
            self.register_buffer("rotary", table, persistent=False)

    def packed(self, x: Tensor, values: list[Tensor]) -> Tensor:
        """Return queries, keys and values (B, T, 3 C); `values` holds block 0's, if shared."""
        qkv = self.qkv(x)
        if hasattr(self, "rotary"):
            qkv = mixing.rotate(qkv, self.n_head, self.rotary)
        if not self.share_values:
            return qkv
        C = x.shape[-1]
        values.append(qkv[..., 2 * C :])  # (Zhou et al. 2024, with equal shares)
        return torch.cat([qkv[..., : 2 * C], 0.5 * (values[0] + values[-1])], dim=-1)

    def forward(self, x: Tensor, masks: Masks | None, values: list[Tensor]) -> Tensor:
        qkv = self.packed(x, values)
        keeps, inverse = None, 1.0
        if masks:
            keeps, inverse = masks.attention(), masks.inverse
        y = self.attend(qkv, self.n_head, keeps, inverse)
        if self.pattern == "shaped":
            y = mixing.shaped(y, qkv, *self.shape)
        return self.proj(y)


class Convolution(nn.Module):
    """Each token's sum of linear maps of itself and the two before it; attention's size."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.taps = Linear(run, run.n_embd, CONV_WINDOW * run.n_embd)
        self.proj = Linear(run, run.n_embd, run.n_embd)

    def forward(self, x: Tensor, masks: Masks | None, values: list[Tensor]) -> Tensor:
        first, *delayed = self.taps(x).chunk(CONV_WINDOW, dim=-1)
        for steps, tap in enumerate(delayed, 1):
            first = first + F.pad(tap, (0, 0, steps, 0))[:, : x.shape[1]]
        return self.proj(first)


class PositionBlind(nn.Module):
    """A perceptron that sees one position only (the paper's MLP mixer, Section 7.4)."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.inner = Linear(run, run.n_embd, 2 * run.n_embd)
        self.proj = Linear(run, 2 * run.n_embd, run.n_embd)

    def forward(self, x: Tensor, masks: Masks | None, values: list[Tensor]) -> Tensor:
        return self.proj(activations.gelu(self.inner(x)))


class StateSpace(nn.Module):
    """Diagonal real state-space mixer: n_embd decaying modes a channel (S4D-Real, Gu et al. 2022).

    y_t = sum over s <= t of k_{t-s} u_s, with k_j = sum over modes m of weight_m * decay_m^j.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.inner = Linear(run, run.n_embd, run.n_embd)
        self.modes = nn.Parameter(torch.empty(run.n_embd, run.n_embd))
        # One axis, so that weight decay leaves it alone: it would pull every decay to 1/2.
        self.decay = nn.Parameter(torch.empty(run.n_embd * run.n_embd))
        self.proj = Linear(run, run.n_embd, run.n_embd)

    def forward(self, x: Tensor, masks: Masks | None, values: list[Tensor]) -> Tensor:
        kernel = mixing.decaying(self.modes, self.decay.view_as(self.modes), x.shape[1])
        return self.proj(mixing.causal_convolution(self.inner(x).float(), kernel))


MIXERS = {"attention": Attention, "conv": Convolution, "mlp": PositionBlind, "ssm": StateSpace}


class FFN(nn.Module):
    """Position-wise feed-forward network with the exact GELU (Equation 4)."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.up = Linear(run, run.n_embd, 4 * run.n_embd)
        self.down = Linear(run, 4 * run.n_embd, run.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(activations.gelu(self.up(x)))


class SwiGLU(nn.Module):
    """Gated FFN (Shazeer 2020), 8/3 as wide as the stream: as many parameters as the FFN."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        width = round(8 * run.n_embd / 3)
        self.up = Linear(run, run.n_embd, 2 * width)
        self.down = Linear(run, width, run.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(gate * activations.sigmoid(gate) * value)


FFNS = {"gelu": FFN, "swiglu": SwiGLU}


class Block(nn.Module):
    """Equations 1 and 2, with a factor on each skip.

    `attn` is the mixer, whichever it is. A `parallel` block (Wang & Komatsuzaki 2021) has one skip,
    of which each sublayer brings half.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.ln_1, self.attn = NORMS[run.norm](run), MIXERS[run.mixer](run)
        self.ln_2, self.ffn = NORMS[run.norm](run), FFNS[run.ffn](run)
        self.attn_skip, self.ffn_skip = run.attn_skip, run.ffn_skip
        self.gain, self.kind = run.gain, run.block

    def forward(self, x: Tensor, masks: Masks | None, values: list[Tensor]) -> Tensor:
        return getattr(self, self.kind)(x, masks, values)

    def pre_ln(self, x: Tensor, masks: Masks | None, values: list[Tensor]) -> Tensor:
        x = self._sum(self.attn_skip, x, self.attn(self.ln_1(x), masks, values), masks)
        return self._sum(self.ffn_skip, x, self.ffn(self.ln_2(x)), masks)

    def post_ln(self, x: Tensor, masks: Masks | None, values: list[Tensor]) -> Tensor:
        x = self.ln_1(self._sum(self.attn_skip, x, self.attn(x, masks, values), masks))
        return self.ln_2(self._sum(self.ffn_skip, x, self.ffn(x), masks))

    def parallel(self, x: Tensor, masks: Masks | None, values: list[Tensor]) -> Tensor:
        skip = 0.5 * (self.attn_skip + self.ffn_skip)
        mixed = self._sum(skip, x, self.attn(self.ln_1(x), masks, values), masks)
        return self._sum(1.0, mixed, self.ffn(self.ln_2(x)), masks)

    def _sum(self, skip: float, x: Tensor, y: Tensor, masks: Masks | None) -> Tensor:
        """Return skip * x + gain * y in float32, with y under dropout while training."""
        y = y.float()
        if self.gain != 1.0:
            y = self.gain * y
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
        learned = run.position == "learned"
        self.wpe = nn.Parameter(torch.empty(run.block_size, run.n_embd)) if learned else None
        self.blocks = nn.ModuleList(Block(run) for _ in range(run.n_layer))
        self.ln_f = NORMS[run.norm](run)
        self.head = None if run.tie_weights else nn.Parameter(torch.empty(vocab_size, run.n_embd))

    @torch.no_grad()
    def init(self, seed: int) -> None:
        """Draw the weights from the run's own stream, each matrix by its name.

        | parameter                         | distribution                                         |
        |-----------------------------------|------------------------------------------------------|
        | matrices and embeddings           | N(0, init_std)                                       |
        | matrices of blocks, if orthogonal | singular values 1, uniform (Saxe et al. 2014)        |
        | attn.proj.weight, ffn.down.weight | the same, times init_gain, and / sqrt(2 n_layer) if  |
        |                                   | scale_residual_init                                  |
        | queries, if shaped                | 0 (He & Hofmann 2024)                                |
        | norm weights, shaped attention's  | 1                                                    |
        | decays of the state-space mixer   | time constants from 1 to block_size, log-spaced      |
        | biases                            | 0                                                    |
        """
        for name, parameter in self.named_parameters():
            if name.endswith("decay"):
                parameter.copy_(mixing.log_spaced_decays(self.run.n_embd, self.run.block_size))
            elif parameter.dim() == 1:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            else:
                parameter.copy_(torch.from_numpy(self._matrix(seed, name, tuple(parameter.shape))))
            if name.endswith("qkv.weight") and self.run.attention_pattern == "shaped":
                parameter[: self.run.n_embd] = 0.0
        if k := self.run.perturbation:
            flat = self.wte.view(-1)
            at = int(rng.integers(k, rng.Purpose.INIT, 1, flat.numel())[0])
            flat[at] = torch.nextafter(flat[at], torch.tensor(math.inf))

    def _matrix(self, seed: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return a matrix of `init`'s table, float32."""
        run, factor = self.run, 1.0
        if name.endswith(("proj.weight", "down.weight")):
            factor = run.init_gain
            if run.scale_residual_init:
                factor /= math.sqrt(2 * run.n_layer)
        if run.init == "orthogonal" and name.startswith("blocks."):
            return rng.orthogonal(seed, name, shape) * np.float32(factor)
        return rng.normal(seed, name, shape) * (run.init_std * factor)

    def forward(self, tokens: Tensor, masks: Masks | None = None) -> Output:
        """Return logits and hidden states; with `masks`, under dropout.

        tokens: (B, T) int64, T <= block_size.
        """
        x = F.embedding(tokens, self.wte)
        x = x if self.wpe is None else x + self.wpe[: tokens.shape[1]]
        x = x * masks.hidden() if masks else x
        hidden, values = [x], []
        for block in self.blocks:
            x = block(x, masks, values)
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
