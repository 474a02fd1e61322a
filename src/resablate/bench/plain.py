"""The plain step: what a user of PyTorch would write, after nanoGPT. The measure of the benchmark.

The same function as `model.GPT` (same parameters, same dropout rates, Full configuration with an
untied head), in eager operators: nn.Linear, nn.LayerNorm, F.dropout, scaled_dot_product_attention
or nanoGPT's manual attention, torch.autocast for bf16, nn.utils.clip_grad_norm_, AdamW.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from resablate.params import Run


class PlainAttention(nn.Module):
    """nanoGPT's CausalSelfAttention without flash: full scores, masked, dropped."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.qkv = nn.Linear(run.n_embd, 3 * run.n_embd, bias=run.bias)
        self.proj = nn.Linear(run.n_embd, run.n_embd, bias=run.bias)
        self.n_head, self.dropout = run.n_head, run.dropout
        self.fused = run.attention == "sdpa"
        mask = torch.ones(run.block_size, run.block_size, dtype=torch.bool).tril()
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        q, k, v = (
            part.view(B, T, self.n_head, -1).transpose(1, 2) for part in self.qkv(x).split(C, dim=2)
        )
        rate = self.dropout if self.training else 0.0
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
            weight = F.softmax(scores.masked_fill(~self.mask[:T, :T], -math.inf), dim=-1)
            y = F.dropout(weight, rate) @ v
        y = self.proj(y.transpose(1, 2).reshape(B, T, C))
        return F.dropout(y, self.dropout, self.training)


class PlainFFN(nn.Module):
    """nanoGPT's MLP."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.up = nn.Linear(run.n_embd, 4 * run.n_embd, bias=run.bias)
        self.down = nn.Linear(4 * run.n_embd, run.n_embd, bias=run.bias)
        self.dropout = run.dropout

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.down(F.gelu(self.up(x))), self.dropout, self.training)


class PlainBlock(nn.Module):
    """nanoGPT's Block."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(run.n_embd, bias=run.bias)
        self.attn = PlainAttention(run)
        self.ln_2 = nn.LayerNorm(run.n_embd, bias=run.bias)
        self.ffn = PlainFFN(run)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.ffn(self.ln_2(x))


class PlainGPT(nn.Module):
    """nanoGPT's GPT; parameter names are those of `model.GPT`."""

    def __init__(self, run: Run, vocab_size: int) -> None:
        super().__init__()
        self.wte = nn.Parameter(torch.empty(vocab_size, run.n_embd))
        self.wpe = nn.Parameter(torch.empty(run.block_size, run.n_embd))
        self.blocks = nn.ModuleList(PlainBlock(run) for _ in range(run.n_layer))
        self.ln_f = nn.LayerNorm(run.n_embd, bias=run.bias)
        self.head = None if run.tie_weights else nn.Parameter(torch.empty(vocab_size, run.n_embd))
        self.dropout = run.dropout

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy, nats per token."""
        x = F.embedding(tokens, self.wte) + self.wpe[: tokens.shape[1]]
        x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte if self.head is None else self.head)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
