"""One training step: ours against the plain one, interleaved in one process."""

import itertools
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from resablate import ops, params
from resablate.bench.plain import PlainGPT
from resablate.dropout import Masks
from resablate.model import GPT
from resablate.ops import DTYPES
from resablate.optimiser import AdamW
from resablate.params import Run
from resablate.train import total_norm

VOCAB = 65
SHAPES = {"tiny": (16, 1), "gpt10m": (16, 0)}  # scale: batch size, threads (0: all cores)
VARIANTS = ("plain float32", "plain bfloat16", "ours float32", "ours bfloat16")
ROUNDS = {"tiny": 25, "gpt10m": 7}
CPU = torch.device("cpu")


def bench_run(scale: str, dtype: str) -> Run:
    """Return the Full configuration of a scale with an untied head, as nanoGPT trains it."""
    run = params.load().resolve(scale, "residualgpt", "full")
    batch, threads = SHAPES[scale]
    changes = {"dtype": dtype, "batch_size": batch, "tie_weights": False, "device": "cpu"}
    return run.model_copy(update=changes | {"threads": threads or torch.get_num_threads()})


def make_step(scale: str, variant: str) -> Callable[[], None]:
    """Return a function that takes one whole step: forward, backward, clipping, AdamW."""
    kind, dtype = variant.split()
    run = bench_run(scale, dtype)
    generator = torch.Generator().manual_seed(1)
    shape = (2, run.batch_size, run.block_size)
    tokens, targets = torch.randint(0, VOCAB, shape, generator=generator)
    start = GPT(run, VOCAB)
    start.init(1)
    return (
        _ours(run, start, tokens, targets)
        if kind == "ours"
        else _plain(run, start, tokens, targets)
    )


def _ours(run: Run, model: GPT, tokens: torch.Tensor, targets: torch.Tensor) -> Callable[[], None]:
    optimiser = AdamW(model, run)
    counter = itertools.count(1)

    def step() -> None:
        optimiser.zero_grad()
        n = next(counter)
        masks = Masks(run, 1, n, CPU, run.threads)
        model.loss(tokens, targets, masks).backward()
        norm = total_norm([p.grad for p in optimiser.parameters.values()])
        optimiser.step(n, run.lr, (norm / run.grad_clip).clamp_(min=1.0))

    return step


def _plain(run: Run, start: GPT, tokens: torch.Tensor, targets: torch.Tensor) -> Callable[[], None]:
    model = PlainGPT(run, VOCAB)
    model.load_state_dict(start.state_dict())
    groups = [
        {
            "params": [p for p in model.parameters() if p.dim() >= 2],
            "weight_decay": run.weight_decay,
        },
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=run.lr, betas=(run.beta1, run.beta2))

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=run.dtype == "bfloat16"):
            loss = model.loss(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), run.grad_clip)
        optimiser.step()

    return step


def step_flops(run: Run) -> float:
    """Return the floating-point operations of a step: 6 per weight and token, attention causal."""
    C, L, T = run.n_embd, run.n_layer, run.block_size
    weights = 12 * L * C * C + VOCAB * C
    return run.tokens_per_step * (6.0 * weights + 6.0 * L * C * T)


def gemm_peak(dtype: str) -> float:
    """Return the best rate, FLOP/s, of a large matrix product through the kernel that we use."""
    n = 2048
    a, b = (torch.randn(n, n).to(DTYPES[dtype]) for _ in range(2))
    ops.linear(a, b, None, DTYPES[dtype])
    return (
        2.0
        * n**3
        / min(seconds_of(lambda: ops.linear(a, b, None, DTYPES[dtype])) for _ in range(7))
    )


def seconds_of(function: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def measure(scale: str) -> dict[str, Any]:
    """Return for each variant of a step: median and spread of its time, and what follows."""
    threads = SHAPES[scale][1]
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    steps = {variant: make_step(scale, variant) for variant in VARIANTS}
    times: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(ROUNDS[scale] + 2):
        for variant, step in steps.items():
            times[variant].append(seconds_of(step))
    peaks = {dtype: gemm_peak(dtype) for dtype in DTYPES}
    run = bench_run(scale, "float32")
    plain = statistics.median(times["plain float32"][2:])
    result: dict[str, Any] = {
        "batch_size": run.batch_size,
        "threads": torch.get_num_threads(),
        "gemm_peak_gflops": {dtype: round(peak / 1e9, 1) for dtype, peak in peaks.items()},
    }
    torch.set_num_threads(before)
    for variant, seconds in times.items():
        quartiles = statistics.quantiles(seconds[2:], n=4)
        median, dtype = quartiles[1], variant.split()[1]
        result[variant] = {
            "step_ms": round(median * 1e3, 2),
            "quartiles_ms": [round(q * 1e3, 2) for q in (quartiles[0], quartiles[2])],
            "tokens_per_s": round(run.tokens_per_step / median),
            "speedup_over_plain_float32": round(plain / median, 3),
            "share_of_gemm_peak": round(step_flops(run) / median / peaks[dtype], 3),
            "peak_memory_mb": peak_memory(scale, variant),
        }
    return result


def peak_memory(scale: str, variant: str) -> float:
    """Return the peak resident memory, MB, of a process of its own that takes three steps."""
    command = [sys.executable, "-m", "resablate.bench.steps", scale, variant]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main(scale: str, variant: str) -> None:
    """Take three steps; print this process's peak resident memory, MB."""
    step = make_step(scale, variant)
    for _ in range(3):
        step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main(*sys.argv[1:])
