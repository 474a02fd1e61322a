"""What a run needs, from its parameters alone: weights, FLOPs, tokens, memory.

FLOPs are counted as Chowdhery et al. (2022, PaLM, Appendix B) count them: two for each multiply-add
of a matrix product, the T x T scores in full, three times the forward pass for a training step.
All is of attention and a GELU FFN: the studies' other mixers and FFNs have as many weights.
"""

from typing import NamedTuple

from resablate.params import Run

VOCABULARY = {"shakespeare": 65, "owt": 50_257, "openwebtext": 50_257}  # token ids of a data set
BYTES = {"float32": 4, "bfloat16": 2}
QUERIES = 64  # a block in ops.py, whose import would bring PyTorch
FLOAT = 4  # bytes of a weight, a gradient, a moment; of hidden states, LayerNorms and losses


def causal_elements(T: int) -> int:
    """Return the attention weights of a head that our attention computes, blocks of 64 queries."""
    return sum(min(QUERIES, T - first) * min(first + QUERIES, T) for first in range(0, T, QUERIES))


def n_params(run: Run) -> int:
    """Return the number of weights; a tied matrix counts once."""
    C, bias = run.n_embd, int(run.bias)
    linear = 12 * C * C + bias * 9 * C  # q, k, v; attention's output; FFN up and down
    norm = C + bias * C
    embeddings = (VOCABULARY[run.dataset] * (1 if run.tie_weights else 2) + run.block_size) * C
    return run.n_layer * (linear + 2 * norm) + norm + embeddings


def flops_per_token(run: Run) -> int:
    """Return the FLOPs of a training step for each token; a third of it is the forward pass."""
    C = run.n_embd
    multiplied = run.n_layer * 12 * C * C + VOCABULARY[run.dataset] * C
    return 6 * multiplied + 12 * run.n_layer * C * run.block_size


class Sizes(NamedTuple):
    """Totals of one run."""

    tokens: int  # seen in training
    training_flops: int
    evaluation_flops: int  # of all evaluations but the one over the whole validation split
    n_evaluations: int


def sizes(run: Run) -> Sizes:
    """Return the totals of a run."""
    tokens, per_token = run.steps * run.tokens_per_step, flops_per_token(run)
    n = len({*range(0, run.steps, run.eval_interval), run.steps})
    # Beside its batches, an evaluation measures hidden states on one and the next gradient.
    forward = (run.n_eval_batches + 1) * run.batch_size * run.block_size * per_token // 3
    return Sizes(tokens, tokens * per_token, n * forward, n)


def memory(run: Run) -> int:
    """Return the bytes that a training step holds at its peak, within a tenth.

    Weights, gradients and two moments; dropout masks of a whole pass; what the blocks keep for
    the backward pass; logits with their log-softmax and gradient. Allocator and libraries come on
    top: 0.3 GB on a CPU, about 0.6 GB on a GPU.
    """
    C, n, width = run.n_embd, run.batch_size * run.block_size, BYTES[run.dtype]
    weights = 4 * FLOAT * n_params(run)
    if run.dtype != "float32":
        weights += width * (12 * run.n_layer * C * C + VOCABULARY[run.dataset] * C)
    scores = run.batch_size * run.n_head * causal_elements(run.block_size) * width
    masks = 0
    if run.dropout:
        masks = (1 + 2 * run.n_layer) * n * C * FLOAT + run.n_layer * scores
    # float32: both LayerNorms' inputs and sublayers' outputs. In the run's dtype: the input of each
    # linear layer (C + C + C + 4 C), q, k, v, and GELU's input (4 C).
    blocks = n * C * (4 * FLOAT + 14 * width) + scores
    if run.attention == "manual":  # the whole square, before and after dropout, and its mask
        square = run.batch_size * run.n_head * run.block_size**2 * width
        blocks += (3 if run.dropout else 1) * square - scores
    logits = 3 * n * VOCABULARY[run.dataset] * FLOAT
    return weights + masks + run.n_layer * blocks + logits
