"""What is measured at every evaluation besides the loss. Nothing here disturbs training."""

import math

import torch
from torch import Tensor

from resablate.model import GPT
from resablate.optimiser import AdamW


def gradient_norms(model: GPT) -> dict[str, float]:
    """Return L2 norms of the gradient before clipping, accumulated in float64.

    `grad_norm` is over all parameters, `grad_norm_block<l>` over block l's ("layer 0" of the paper
    is block 0, without the embeddings). In float32 a vector of 1e-23 would have norm 0.
    """
    squares: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        norm = torch.linalg.vector_norm(parameter.grad, dtype=torch.float64).item()
        place = f"grad_norm_block{name.split('.')[1]}" if name.startswith("blocks.") else "other"
        squares[place] = squares.get(place, 0.0) + norm**2
    total = math.sqrt(math.fsum(squares.values()))
    squares.pop("other")
    return {"grad_norm": total} | {key: math.sqrt(value) for key, value in squares.items()}


@torch.no_grad()
def hidden_states(hidden: list[Tensor]) -> dict[str, float]:
    """Return what the hidden states (L + 1 of (B, T, C)) tell about signal and rank.

    `hidden_norm_<l>`: mean L2 norm of a token after l blocks; `token_cosine_<l>`: mean cosine
    between two different tokens of a sequence (1 is rank collapse, Dong et al. 2021);
    `effective_rank`: participation ratio (sum of eigenvalues)^2 / (sum of their squares) of the
    last block's second-moment matrix, between 1 and C.
    """
    norms, cosines = {}, {}
    for layer, state in enumerate(hidden):
        x = state.double()
        length = x.norm(dim=-1, keepdim=True)
        norms[f"hidden_norm_{layer}"] = _mean(length)
        unit = x / length.clamp_min(1e-300)
        T = x.shape[1]
        # The sum of all pairwise cosines is the squared length of the summed unit vectors.
        pairs = unit.sum(1).square().sum(-1) - unit.square().sum(-1).sum(-1)
        cosines[f"token_cosine_{layer}"] = _mean(pairs / (T * (T - 1)))
    moment = (flat := hidden[-1].double().flatten(0, 1)).t() @ flat
    rank = moment.diagonal().sum().square() / moment.square().sum(0).sum().clamp_min(1e-300)
    return norms | cosines | {"effective_rank": rank.item()}


def _mean(x: Tensor) -> float:
    """Return the mean over all elements, summed exactly: the same for any number of threads."""
    values = x.flatten().tolist()
    return math.fsum(values) / len(values)


@torch.no_grad()
def optimiser_state(optimiser: AdamW, step: int, lr: float) -> dict[str, float | None]:
    """Return how AdamW acts on the blocks' parameters after `step` updates, the last at rate `lr`.

    `adam_eps_share`: share of elements with sqrt(v_hat) < 10 eps, where eps rules the step;
    `update_ratio`: RMS of the last update over RMS of the parameters, weight decay left out.
    Both None before the first update.
    """
    if step == 0:
        return {"update_ratio": None, "adam_eps_share": None}
    run = optimiser.run
    n = small = 0
    update = weight = 0.0
    for name, p in optimiser.parameters.items():
        if not name.startswith("blocks."):
            continue
        # In float32 the root is MKL's, wrong in the last bit for one in seven numbers, and others
        # on each vendor's CPU; by way of float64 it is the nearest float32 everywhere.
        root = (optimiser.exp_avg_sq[name] / (1 - run.beta2**step)).double().sqrt_().float()
        moved = optimiser.exp_avg[name] / (1 - run.beta1**step) / (root + run.adam_eps)
        n += p.numel()
        small += int((root < 10 * run.adam_eps).sum())
        update += torch.linalg.vector_norm(moved, dtype=torch.float64).item() ** 2 * lr**2
        weight += torch.linalg.vector_norm(p, dtype=torch.float64).item() ** 2
    return {"update_ratio": math.sqrt(update / weight), "adam_eps_share": small / n}
