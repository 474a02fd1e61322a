"""What a cell takes on this machine, from a few real steps of its shape.

python -m resablate.measure SCALE, with the run as JSON on stdin, prints it as JSON; `plan` calls it
in a process of its own, so that the peak of memory and pinned numerics are that cell's alone.
"""

import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from resablate import numerics, paths, sizes
from resablate.errors import UserError, run_command
from resablate.files import write_text
from resablate.params import Run

PASS_FLOPS = 3e11  # of a measured micro-batch on a CPU, at most: about half a second
SECONDS = 2.0  # that each thing is measured for, at least, unless it has been done CALLS times
CALLS = 200
EVALUATED = 2  # validation batches of a measured evaluation
SYNTHETIC = 100_000  # tokens that stand in for a data set which is not prepared
KIB = 1024  # the unit of ru_maxrss


class Costs(NamedTuple):
    """Seconds on this machine, measured with `batch` of the run's sequences a micro-batch."""

    startup: float  # imports, weights, and the end of the process
    micro: float  # forward and backward of a whole micro-batch
    update: float
    row: float  # an evaluation with its diagnostics and its part of the trail
    token: float  # forward pass, for each token
    save: float  # of the resumable state, as a share of the time in between
    batch: int
    memory: int  # peak of the measuring process, bytes
    device: str
    threads: int

    def seconds(self, run: Run, val_tokens: int) -> float:
        """Return the time of a whole run, from its first import to its outs."""
        steps = run.steps * (run.accumulation * self.micro + self.update)
        rows = sizes.sizes(run).n_evaluations * self.row
        return self.startup + (steps + rows) * (1 + self.save) + val_tokens * self.token


def measured(scale: str, run: Run) -> Costs:
    """Return a cell's costs here; from the cache where this environment has measured them."""
    cached = paths.main_root() / f".resume/plan/{_key(run)}.json"
    if cached.is_file():
        return Costs(**json.loads(cached.read_text(encoding="utf-8")))
    print(f"measuring at {scale} ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    command, text = (sys.executable, "-m", "resablate.measure", scale), run.model_dump_json()
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "".join(done.stderr.strip().splitlines()[-1:]) or "no reason given"
        raise UserError(
            f"{scale} cannot be measured here ({last}); leave this machine out with --no-measure"
        )
    document = json.loads(done.stdout)
    document["startup"] = time.monotonic() - began - document.pop("measuring")
    write_text(cached, json.dumps(document) + "\n")
    return Costs(**document)


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
        Path("/proc/driver/nvidia/version").exists(),
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def timed(call: Callable[[], Any], settle: Callable[[], None]) -> float:
    """Return the mean seconds of a call, the first left out; `settle` waits for the device."""
    call()
    settle()
    began, n = time.perf_counter(), 0
    while n < CALLS and (n == 0 or time.perf_counter() - began < SECONDS):
        call()
        settle()
        n += 1
    return (time.perf_counter() - began) / n


def shrunk(run: Run, device: str) -> Run:
    """Return the run with as few sequences as can be measured soon, and one micro-batch."""
    batch = run.batch_size
    if device == "cpu":
        sequence = sizes.flops_per_token(run) * run.block_size
        batch = max(1, min(batch, int(PASS_FLOPS / sequence)))
    fewer = {"batch_size": batch, "accumulation": 1}
    return run.model_copy(update=fewer | {"n_eval_batches": min(EVALUATED, run.n_eval_batches)})


def measure(run: Run, folder: Path) -> dict[str, Any]:
    """Return the fields of Costs but `startup`, and the seconds that it took to measure."""
    import torch  # noqa: PLC0415 -- reads the pins

    from resablate import checkpoint, diagnostics, environment, train  # noqa: PLC0415
    from resablate.data import Tokens  # noqa: PLC0415

    device = environment.configure(run)
    small = shrunk(run, device.type)
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

    settle()
    began = time.monotonic()
    gradient = timed(trainer.gradient, settle)
    loss, norm = trainer.gradient()
    update = timed(lambda: trainer.update(loss, norm), settle)
    one = timed(lambda: trainer.loss_over(trainer.fixed[:1]), settle)
    beside = max(0.0, timed(row, settle) - small.n_eval_batches * one)
    saving = timed(save, settle)
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
        "measuring": time.monotonic() - began,
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
    """Print a cell's costs as JSON."""
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
        print(json.dumps(measure(run, folder)))


if __name__ == "__main__":
    run_command(main, sys.argv[1:])
