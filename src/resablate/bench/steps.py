"""One training step: ours against the plain one, interleaved in one process."""

import itertools
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from resablate import allocator, environment, numerics, params, sizes
from resablate.bench import peak_memory_mb, seconds_of
from resablate.bench.plain import PlainGPT
from resablate.dropout import Masks
from resablate.measure import gemm_rate
from resablate.model import GPT
from resablate.ops import DTYPES
from resablate.optimiser import AdamW
from resablate.params import Run
from resablate.train import total_norm

VARIANTS = ("plain float32", "plain bfloat16", "ours float32", "ours bfloat16")


class Shape(NamedTuple):
    """What is timed: a scale's model at a batch size, on so many threads (0: all cores)."""

    scale: str
    batch_size: int
    threads: int
    rounds: int


SHAPES = (Shape("tiny", 16, 1, 25), Shape("gpt10m", 8, 0, 7), Shape("gpt10m", 32, 0, 4))
WARM_UP = 2  # rounds that are not counted
PROCESSES = 3  # of each kind, where a process is of one kind
CPU = torch.device("cpu")


def bench_run(shape: Shape, dtype: str) -> Run:
    """Return the Full configuration of a scale with an untied head, as nanoGPT trains it."""
    run = params.load().resolve(shape.scale, "residualgpt", "full")
    changes = {
        "dtype": dtype,
        "batch_size": shape.batch_size,
        "tie_weights": False,
        "device": "cpu",
        "threads": shape.threads or torch.get_num_threads(),
        "numerics": "native",
    }
    return run.model_copy(update=changes)


def make_step(shape: Shape, variant: str) -> Callable[[], None]:
    """Return a function that takes one whole step: forward, backward, clipping, AdamW."""
    kind, dtype = variant.split()
    run = bench_run(shape, dtype)
    generator = torch.Generator().manual_seed(1)
    size = (2, run.batch_size, run.block_size)
    vocab = sizes.VOCABULARY[run.dataset]
    tokens, targets = torch.randint(0, vocab, size, generator=generator)
    start = GPT(run, vocab)
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
    model = PlainGPT(run, sizes.VOCABULARY[run.dataset])
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
    weights = 12 * L * C * C + sizes.VOCABULARY[run.dataset] * C
    return run.tokens_per_step * (6.0 * weights + 6.0 * L * C * T)


def measure() -> list[dict[str, Any]]:
    """Measure every shape."""
    return [_measure(shape) for shape in SHAPES]


def machine() -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    return environment.record(CPU)


def _measure(shape: Shape) -> dict[str, Any]:
    """Return for each variant of a step: median and quartiles of its time, and what follows."""
    before = torch.get_num_threads()
    torch.set_num_threads(shape.threads or before)
    steps = {variant: make_step(shape, variant) for variant in VARIANTS}
    times: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(shape.rounds + WARM_UP):
        for variant, step in steps.items():
            times[variant].append(seconds_of(step))
    peaks = {dtype: gemm_rate(dtype) for dtype in DTYPES}
    result: dict[str, Any] = {
        "scale": shape.scale,
        "batch_size": shape.batch_size,
        "threads": torch.get_num_threads(),
        "gemm_peak_gflops": {dtype: round(peak / 1e9, 1) for dtype, peak in peaks.items()},
    }
    torch.set_num_threads(before)
    run = bench_run(shape, "float32")
    plain = statistics.median(times["plain float32"][WARM_UP:])
    for variant, seconds in times.items():
        low, median, high = statistics.quantiles(seconds[WARM_UP:], n=4, method="inclusive")
        peak = peaks[variant.split()[1]]
        result[variant] = {
            "step_ms": round(median * 1e3, 2),
            "quartiles_ms": [round(low * 1e3, 2), round(high * 1e3, 2)],
            "tokens_per_s": round(run.tokens_per_step / median),
            "speedup_over_plain_float32": round(plain / median, 3),
            "share_of_gemm_peak": round(step_flops(run) / median / peak, 3),
            "peak_memory_mb": round(peak_memory(shape, variant), 1),
        }
    return result


def peak_memory(shape: Shape, variant: str) -> float:
    """Return the peak resident memory, MB, of a process of its own that takes three steps."""
    command = [sys.executable, "-m", "resablate.bench.steps", str(SHAPES.index(shape)), variant]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main(index: int, variant: str) -> None:
    """Take three steps; print this process's peak resident memory, MB."""
    step = make_step(SHAPES[index], variant)
    for _ in range(3):
        step()
    print(peak_memory_mb())


def portable_cost() -> float:
    """Return how much longer a step at `tiny` takes with portable numerics."""
    return _ratio("tiny", os.environ | numerics.PINS, os.environ)


def kept_memory() -> dict[str, float]:
    """Return how much longer a step takes that gives its memory back to the system, by scale."""
    plain = {name: value for name, value in os.environ.items() if name != allocator.VARIABLE}
    return {scale: _ratio(scale, plain, allocator.keeping(plain)) for scale in ("tiny", "tiny_owt")}


def _ratio(scale: str, *environments: Mapping[str, str]) -> float:
    """Return a step's time in the first environment over that in the second: medians, in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    command = [sys.executable, "-m", "resablate.bench.steps", scale]
    for _ in range(PROCESSES):
        for variables, of in zip(environments, times, strict=True):
            of.append(float(subprocess.check_output(command, env=variables, text=True)))
    return round(statistics.median(times[0]) / statistics.median(times[1]), 3)


def time_step(scale: str) -> None:
    """Print the median time of a step, seconds, with this process's numerics and allocator."""
    shape = Shape(scale, 16, 1, 25)
    torch.set_num_threads(shape.threads)
    torch.backends.mkldnn.enabled = not numerics.is_pinned()
    step = make_step(shape, "ours float32")
    print(statistics.median([seconds_of(step) for _ in range(shape.rounds + WARM_UP)][WARM_UP:]))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2]) if sys.argv[2:] else time_step(sys.argv[1])
