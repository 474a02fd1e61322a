"""What is measured at every evaluation besides the loss. Nothing here disturbs training."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from resablate import ops
from resablate.model import GPT, Attention, Block
from resablate.optimiser import AdamW


def gradient_norms(model: GPT) -> dict[str, float]:
    """Return L2 norms of the gradient before clipping, accumulated in float64.

    `grad_norm` is over all parameters, `grad_norm_block<l>` over block l's ("layer 0" of the paper
    is block 0, without the embeddings), `grad_norm_block<l>_<matrix>` over one weight matrix, of
    attention's first q, k and v apart. In float32 a vector of 1e-23 would have norm 0.
    """
    squares: dict[str, float] = {}
    matrices: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        norm = _norm(parameter.grad)
        place = f"grad_norm_block{name.split('.')[1]}" if name.startswith("blocks.") else "other"
        squares[place] = squares.get(place, 0.0) + norm**2
        if place != "other" and parameter.dim() == 2:
            matrices |= {f"{place}_{key}": of for key, of in _parts(name, parameter, norm).items()}
    total = math.sqrt(math.fsum(squares.values()))
    squares.pop("other")
    blocks = {key: math.sqrt(value) for key, value in squares.items()}
    return {"grad_norm": total} | blocks | matrices


def _norm(x: Tensor) -> float:
    return torch.linalg.vector_norm(x, dtype=torch.float64).item()


def _parts(name: str, parameter: Tensor, norm: float) -> dict[str, float]:
    """Return the gradient norm of a block's matrix by its short name, that of qkv in three."""
    matrix = name.removesuffix(".weight").rpartition(".")[2]
    if matrix != "qkv":
        return {matrix: norm}
    return {key: _norm(part) for key, part in zip("qkv", parameter.grad.chunk(3), strict=True)}


class Seen(NamedTuple):
    """What passes through a model in one forward pass over (B, T) tokens."""

    hidden: list[Tensor]  # n_layer + 1 of (B, T, C): the embedding's and each block's output
    normed: list[Tensor]  # the inputs of all normalisations, (B, T, C)
    mixed: list[Tensor]  # the inputs of the blocks' mixers, (B, T, C)


@torch.no_grad()
def look(model: GPT, tokens: Tensor) -> Seen:
    """Return what passes through the model, without dropout."""
    normed: list[Tensor] = []
    mixed: list[Tensor] = []

    def keep(into: list[Tensor]) -> object:
        return lambda module, inputs: into.append(inputs[0])

    blocks = [module for module in model.modules() if isinstance(module, Block)]
    norms = [norm for block in blocks for norm in (block.ln_1, block.ln_2)] + [model.ln_f]
    handles = [norm.register_forward_pre_hook(keep(normed)) for norm in norms]
    handles += [block.attn.register_forward_pre_hook(keep(mixed)) for block in blocks]
    try:
        return Seen(model(tokens).hidden, normed, mixed)
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def activations(model: GPT, seen: Seen) -> dict[str, float]:
    """Return what a forward pass tells about signal, rank and routing.

    `hidden_norm_<l>`: mean L2 norm of a token after l blocks; `token_cosine_<l>`: mean cosine
    between two different tokens of a sequence (1 is rank collapse, Dong et al. 2021);
    `effective_rank_<l>`: participation ratio (sum of eigenvalues)^2 / (sum of their squares) of the
    hidden states' second-moment matrix, between 1 and C; `attention_self_<l>`: block l's mean
    attention weight of a token on itself, without the first token, which has no other;
    `norm_var_over_eps`: the least, over normalisations, of the input's mean variance over eps.
    """
    found: dict[str, dict[str, float]] = {}
    for layer, state in enumerate(seen.hidden):
        for name, value in _geometry(state.double()).items():
            found.setdefault(name, {})[f"{name}_{layer}"] = value
    heads = [m for m in model.modules() if isinstance(m, Attention)]
    masses = [_self_mass(attn, x) for attn, x in zip(heads, seen.mixed, strict=False)]
    routing = {f"attention_self_{layer}": mass for layer, mass in enumerate(masses)}
    power = min(_power(model.ln_f, x.double()) for x in seen.normed) / model.ln_f.eps
    return (
        {k: v for of in found.values() for k, v in of.items()}
        | routing
        | {"norm_var_over_eps": power}
    )


def _geometry(x: Tensor) -> dict[str, float]:
    """Return norm, cosine and rank of hidden states (B, T, C), float64."""
    length = x.norm(dim=-1, keepdim=True)
    unit = x / length.clamp_min(1e-300)
    T = x.shape[1]
    # The sum of all pairwise cosines is the squared length of the summed unit vectors.
    pairs = unit.sum(1).square().sum(-1) - unit.square().sum(-1).sum(-1)
    moment = (flat := x.flatten(0, 1)).t() @ flat
    rank = moment.diagonal().sum().square() / moment.square().sum(0).sum().clamp_min(1e-300)
    return {
        "hidden_norm": _mean(length),
        "token_cosine": _mean(pairs / (T * (T - 1))),
        "effective_rank": rank.item(),
    }


def _self_mass(attn: Attention, x: Tensor) -> float:
    """Return the mean weight of a token on itself, over heads and all tokens but the first."""
    q, k, _ = ops.split_heads(attn.packed(x, []), attn.n_head)
    return _mean(ops.attention_weights(q, k, attn.pattern).diagonal(dim1=1, dim2=2)[:, 1:])


def _power(norm: nn.Module, x: Tensor) -> float:
    """Return the mean over tokens of what a normalisation divides by, squared and without eps."""
    centred = x - x.mean(-1, keepdim=True) if hasattr(norm, "bias") else x
    return _mean(centred.square().mean(-1))


def _mean(x: Tensor) -> float:
    """Return the mean over all elements, summed exactly: the same for any number of threads."""
    values = x.flatten().tolist()
    return math.fsum(values) / len(values)


@torch.no_grad()
def optimiser_state(optimiser: AdamW, step: int, lr: float) -> dict[str, float | None]:
    """Return how AdamW acts on the blocks' parameters after `step` updates, the last at rate `lr`.

    `adam_eps_share`: share of elements with sqrt(v_hat) < 10 eps, where eps rules the step;
    `update_ratio`: RMS of the last update over RMS of the parameters, weight decay left out.
    Both None before the first update; SGD has only the second.
    """
    if step == 0:
        return {"update_ratio": None, "adam_eps_share": None}
    run = optimiser.run
    n = small = 0
    update = weight = 0.0
    for name, p in optimiser.parameters.items():
        if not name.startswith("blocks."):
            continue
        moved = optimiser.exp_avg[name]
        if optimiser.exp_avg_sq:
            # In float32 the root is MKL's, wrong in the last bit for one in seven numbers, and
            # others on each vendor's CPU; by way of float64 it is the nearest float32 everywhere.
            root = (optimiser.exp_avg_sq[name] / (1 - run.beta2**step)).double().sqrt_().float()
            moved = moved / (1 - run.beta1**step) / (root + run.adam_eps)
            n += p.numel()
            small += int((root < 10 * run.adam_eps).sum())
        update += _norm(moved) ** 2 * lr**2
        weight += _norm(p) ** 2
    share = small / n if n else None
    return {"update_ratio": math.sqrt(update / weight), "adam_eps_share": share}
