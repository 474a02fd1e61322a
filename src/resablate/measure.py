"""What a cell takes on this machine, from a few real steps of its shape.

python -m resablate.measure SCALE, with the run as JSON on stdin, prints how long it will measure,
then the costs, a line of JSON each; `plan` calls it in a process of its own, so that the peak of
memory and pinned numerics are that cell's alone. What cannot be measured soon is estimated from
FLOPs and the rate of a large matrix product.
"""

import hashlib
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from resablate import allocator, numerics, paths, sizes
from resablate.errors import UserError, run_command
from resablate.files import write_text
from resablate.params import Run

LIMIT = 60.0  # seconds to measure a shape for, at most
GEMM = 2048  # rows and columns of the matrix product whose rate is taken
GEMM_SHARE = 0.5  # of that rate, which a step reaches; 0.54 to 0.60 at gpt10m in metrics/bench.json
GRADIENT = 3  # in forward passes
FORWARDS = (GRADIENT, GRADIENT, 1, 6)  # of a gradient, the update's one, a batch, a row
PASS_SECONDS = 3.0  # of a measured micro-batch on a CPU, forward and backward, at most
SECONDS = 2.0  # that each thing is measured for, at least, unless it has been done CALLS times
CALLS = 200
WARM_UP = 3  # gradients before that: kernels load, memory comes from the system, once and for all
EVALUATED = 2  # validation batches of a measured evaluation
SYNTHETIC = 100_000  # tokens that stand in for a data set which is not prepared
KIB = 1024  # the unit of ru_maxrss
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


class TooSlowError(Exception):
    """A shape cannot be measured within LIMIT."""


class Costs(NamedTuple):
    """Seconds on this machine, measured with `batch` of the run's sequences a micro-batch."""

    startup: float  # imports, weights, and the end of the process
    micro: float  # forward and backward of a whole micro-batch
    update: float
    row: float  # an evaluation with its diagnostics and its part of the trail, beside the gradient
    token: float  # forward pass, for each token
    save: float  # of the resumable state, as a share of the time in between
    batch: int
    memory: int  # peak of the measuring process, bytes
    device: str
    threads: int
    clock: str  # "wall"; "cpu" on one thread, whatever else runs; "gemm": estimated, not measured

    def seconds(self, run: Run, val_tokens: int) -> float:
        """Return the time of a whole run, from its first import to its outs."""
        gradients = run.steps + 1  # the last row's is no update's
        steps = gradients * run.accumulation * self.micro + run.steps * self.update
        rows = sizes.sizes(run).n_evaluations * self.row
        return self.startup + (steps + rows) * (1 + self.save) + val_tokens * self.token


def measured(scale: str, run: Run) -> Costs:
    """Return a cell's costs here; from the cache where this environment has measured them."""
    cached = paths.main_root() / f".resume/plan/{_key(run)}.json"
    if cached.is_file():
        return Costs(**json.loads(cached.read_text(encoding="utf-8")))
    began, cpu_before = time.monotonic(), _cpu_of_children()
    command = (sys.executable, "-m", "resablate.measure", scale)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = allocator.keeping(os.environ)  # as a sweep starts it
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        process.stdin.write(run.model_dump_json())
        process.stdin.close()
        if first := process.stdout.readline():
            print(f"{scale}: {_announced(json.loads(first))}", file=sys.stderr, flush=True)
        printed, errors = process.stdout.read(), process.stderr.read()
    if process.returncode:
        last = "".join(errors.strip().splitlines()[-1:]) or "no reason given"
        raise UserError(
            f"{scale} cannot be measured here ({last}); leave this machine out with --no-measure"
        )
    document = json.loads(printed)
    measuring = document.pop("measuring")
    if document["clock"] == "gemm":  # another time, it may be measured
        return Costs(startup=0.0, **document)
    elapsed = time.monotonic() - began
    if document["clock"] == "cpu":
        elapsed = _cpu_of_children() - cpu_before
    document["startup"] = elapsed - measuring
    write_text(cached, json.dumps(document) + "\n")
    return Costs(**document)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _announced(seconds: float) -> str:
    """Return what is said before a shape is measured."""
    if seconds > LIMIT:
        return f"measuring would take about {seconds:.0f} s, above {LIMIT:.0f} s: estimated instead"
    return f"measuring for about {seconds:.0f} s, {LIMIT:.0f} s at most"


def _key(run: Run) -> str:
    """Return the hash of what the costs depend on: the run, the code, this machine."""
    code = sorted(Path(__file__).parent.glob("*.py"))
    facts = [
        run.model_dump(),
        [hashlib.sha256(path.read_bytes()).hexdigest() for path in code],
        metadata.version("torch"),
        platform.processor() or platform.machine(),
        Path("/proc/cpuinfo").read_text().partition("\n\n")[0].split("cpu MHz")[0]
        if Path("/proc/cpuinfo").exists()
        else None,
        os.cpu_count(),
        os.environ.get("OMP_NUM_THREADS"),
        os.environ.get(allocator.VARIABLE),
        Path("/proc/driver/nvidia/version").exists(),
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def timed(
    call: Callable[[], Any],
    settle: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the mean seconds of a call, the first left out; `settle` waits for the device.

    A call that takes SECONDS is made once.
    """
    began = clock()
    call()
    settle()
    if (first := clock() - began) >= SECONDS:
        return first
    began, n = clock(), 0
    while n < CALLS and (n == 0 or clock() - began < SECONDS):
        call()
        settle()
        n += 1
    return (clock() - began) / n


def gemm_rate(dtype: str, device: str = "cpu", times: int = 7) -> float:
    """Return the best rate, FLOP/s, of a large matrix product through the kernel that we use."""
    import torch  # noqa: PLC0415 -- reads the pins

    from resablate import ops  # noqa: PLC0415

    kind = ops.DTYPES[dtype]
    a, b = (torch.randn(GEMM, GEMM, device=device).to(kind) for _ in range(2))
    best = float("inf")
    for _ in range(times + 1):  # the first warms up
        began = time.perf_counter()
        ops.linear(a, b, None, kind)[0, 0].item()  # waits for the device
        best = min(best, time.perf_counter() - began)
    return 2.0 * GEMM**3 / best


def _forward(run: Run, rate: float) -> float:
    """Return the seconds of a forward pass of a micro-batch, estimated from the rate of GEMM."""
    flops = sizes.flops_per_token(run) // 3 * run.batch_size * run.block_size
    return flops / (GEMM_SHARE * rate)


def expected(run: Run, rate: float) -> float:
    """Return about how many seconds it takes to measure a shape, shrunk as it is measured."""
    forward = _forward(run, rate)
    return WARM_UP * GRADIENT * forward + sum(max(2 * SECONDS, n * forward) for n in FORWARDS)


def estimated(run: Run, rate: float, device: str, threads: int) -> dict[str, Any]:
    """Return what `measure` returns, from FLOPs and the rate of GEMM alone."""
    forward = _forward(run, rate)
    return {
        "micro": GRADIENT * forward,
        "update": 0.0,
        "row": (run.n_eval_batches + 1) * forward,  # its batches, and the hidden states of one
        "token": forward / (run.batch_size * run.block_size),
        "save": 0.0,
        "batch": 0,
        "memory": sizes.memory(run),
        "device": device,
        "threads": threads,
        "clock": "gemm",
        "measuring": 0.0,
    }


def shrunk(run: Run, device: str, rate: float) -> Run:
    """Return the run with as few sequences as can be measured soon, and one micro-batch."""
    batch = run.batch_size
    if device == "cpu":
        share = PASS_SECONDS / (GRADIENT * _forward(run, rate))
        batch = max(1, min(batch, int(share * batch)))
    fewer = {"batch_size": batch, "accumulation": 1}
    return run.model_copy(update=fewer | {"n_eval_batches": min(EVALUATED, run.n_eval_batches)})


def measure_within_limit(run: Run, folder: Path) -> dict[str, Any]:
    """Print how long measuring takes; return `measure`, or `estimated` where that exceeds LIMIT."""
    import torch  # noqa: PLC0415 -- reads the pins

    from resablate import environment  # noqa: PLC0415

    device = environment.configure(run).type
    began = CLOCKS[_clock(device)]()
    rate = gemm_rate(run.dtype, device, times=2)
    small = shrunk(run, device, rate)
    wanted = expected(small, rate)
    print(json.dumps(wanted), flush=True)
    taking_rate = CLOCKS[_clock(device)]() - began
    try:
        if wanted > LIMIT:
            raise TooSlowError
        with _limit():
            found = measure(run, small, folder)
    except TooSlowError:
        return estimated(run, rate, device, torch.get_num_threads())
    found["measuring"] += taking_rate
    return found


@contextmanager
def _limit() -> Iterator[None]:
    """TooSlowError after LIMIT seconds."""

    def stop(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _clock(device: str) -> str:
    """Return the clock to measure by: what else runs takes no CPU time of one thread's."""
    import torch  # noqa: PLC0415 -- reads the pins

    return "cpu" if (device, torch.get_num_threads()) == ("cpu", 1) else "wall"


def measure(run: Run, small: Run, folder: Path) -> dict[str, Any]:
    """Return the fields of Costs but `startup`, and the seconds that it took to measure `small`."""
    import torch  # noqa: PLC0415 -- reads the pins

    from resablate import checkpoint, diagnostics, environment, train  # noqa: PLC0415
    from resablate.data import Tokens  # noqa: PLC0415

    device = environment.configure(run)
    trainer = train.Trainer(small, 1, Tokens(folder, run.block_size), device)

    def settle() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    def row() -> None:
        trainer.evaluate()
        trainer.gradient(partial(trainer.trail.add, 0))
        diagnostics.gradient_norms(trainer.model)

    def save() -> None:
        checkpoint.write_state(folder / "state", trainer.state())

    kind = _clock(device.type)
    clock = CLOCKS[kind]
    each = partial(timed, settle=settle, clock=clock)
    began = clock()
    for _ in range(WARM_UP):
        trainer.gradient()
    settle()
    gradient = each(trainer.gradient)
    loss, norm = trainer.gradient()
    update = each(lambda: trainer.update(loss, norm))
    one = each(lambda: trainer.loss_over(trainer.fixed[:1]))
    beside = max(0.0, each(row) - small.n_eval_batches * one - gradient)
    saving = each(save)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated()
    ratio = run.batch_size / small.batch_size
    return {
        "micro": gradient * ratio,
        "update": update,
        "row": (run.n_eval_batches * one + beside) * ratio,
        "token": one / (small.batch_size * run.block_size),
        "save": saving / train.SAVE_SECONDS,
        "batch": small.batch_size,
        "memory": peak,
        "device": device.type,
        "threads": torch.get_num_threads(),
        "clock": kind,
        "measuring": clock() - began,
    }


def _synthetic(folder: Path, dataset: str) -> None:
    """Write tokens without meaning, of the data set's vocabulary."""
    size = sizes.VOCABULARY[dataset]
    for split in ("train", "val"):
        np.random.default_rng(1).integers(0, size, SYNTHETIC, dtype="<u2").tofile(
            folder / f"{split}.bin"
        )
    counts = dict.fromkeys(("train_tokens", "val_tokens", "val_bytes"), SYNTHETIC)
    vocab = {"size": size} | counts
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Print how long a cell is measured for, and its costs, as JSON."""
    (scale,) = arguments
    run = Run.model_validate_json(sys.stdin.read())
    numerics.pin(run)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared = paths.tokens(scale)
        if (prepared / "vocab.json").is_file():
            for path in prepared.iterdir():
                (folder / path.name).symlink_to(path.absolute())
        else:
            _synthetic(folder, run.dataset)
        print(json.dumps(measure_within_limit(run, folder)))


if __name__ == "__main__":
    run_command(main, sys.argv[1:])
