"""Some updates of gpt124m in each configuration, here: proof that code and memory hold, no result.

An update is two micro-batches of four sequences, a sixteenth of Table 1's, on the byte-pair tokens
of the stand-in corpus, which `dvc repro prepare_owt` prepares.
"""

import json
import subprocess
import sys
from typing import Any

import torch

from resablate import environment, params, paths, sizes
from resablate.bench import peak_memory_mb, seconds_of
from resablate.data import Tokens
from resablate.errors import UserError
from resablate.params import Run
from resablate.train import Trainer

SCALE, IMPL, SEED, TOKENS = "gpt124m", "residualgpt", 1337, "tiny_owt"
UPDATES = 3
CUT = {"batch_size": 4, "accumulation": 2, "n_eval_batches": 1}  # fits beside other things in 16 GB


def bench_run(config: str) -> Run:
    """Return a configuration of gpt124m with small updates."""
    return params.load().resolve(SCALE, IMPL, config).model_copy(update=CUT)


def measure() -> dict[str, Any]:
    """Return what each configuration did, each in a process of its own."""
    if not (paths.tokens(TOKENS) / "vocab.json").is_file():
        raise UserError(f"{paths.tokens(TOKENS)}: not here; run `dvc repro prepare_owt`")
    found: dict[str, Any] = {}
    for config in params.load().configs:
        command = [sys.executable, "-m", "resablate.bench.large", config]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found[config] = json.loads(done.stdout)
    return found


def main(config: str) -> None:
    """Take the updates; print the loss before each, their time, and the peak memory, as JSON."""
    run = bench_run(config)
    device = environment.configure(run)
    trainer = Trainer(run, SEED, Tokens(paths.tokens(TOKENS), run.block_size), device)
    losses = []

    def update() -> None:
        loss, norm = trainer.gradient()
        trainer.update(loss, norm)
        losses.append(loss.item())  # waits for the device

    times = [seconds_of(update) for _ in range(UPDATES)]
    peak = peak_memory_mb()
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated() / 1024**2
    document = {
        "device": device.type,
        "losses": losses,
        "update_s": round(min(times), 2),
        "tokens_per_s": round(run.tokens_per_step / min(times)),
        "peak_memory_mb": round(peak, 1),
        "computed_memory_mb": round(sizes.memory(run) / 1024**2, 1),
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main(sys.argv[1])
