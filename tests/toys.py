"""Toy sizes: a run, a corpus and a trainer that take milliseconds."""

import json
from pathlib import Path

import numpy as np
import torch

from resablate import params
from resablate.data import Tokens
from resablate.params import Run
from resablate.train import Trainer

CPU = torch.device("cpu")
VOCAB = 13


def toy_run(impl: str = "residualgpt", config: str = "full", **changes: object) -> Run:
    """Return a two-layer run of 12 steps, with changes to it."""
    base = params.load(Path(__file__).parents[1] / "params.yaml").resolve("tiny", impl, config)
    small = {
        "n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 8, "batch_size": 4, "steps": 12,
        "warmup_steps": min(base.warmup_steps, 3), "eval_interval": 5, "n_eval_batches": 2,
        "numerics": "native",  # portable ones need a process set up for them
    }  # fmt: skip
    return Run(**(base.model_dump() | small | changes))


def toy_tokens(folder: Path, n: int = 2000, block_size: int = 8) -> Tokens:
    """Write a corpus with structure to learn (a noisy cycle) and return it."""
    generator = np.random.default_rng(5)
    steps = generator.integers(1, 3, n)
    ids = (np.cumsum(steps) % VOCAB).astype("<u2")
    cut = n * 9 // 10
    folder.mkdir(parents=True, exist_ok=True)
    ids[:cut].tofile(folder / "train.bin")
    ids[cut:].tofile(folder / "val.bin")
    vocab = {"size": VOCAB, "train_tokens": cut, "val_tokens": n - cut, "val_bytes": n - cut}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    return Tokens(folder, block_size)


def toy_trainer(folder: Path, seed: int = 3, **changes: object) -> Trainer:
    """Return a trainer of a toy run on the toy corpus."""
    run = toy_run(**changes)
    tokens = toy_tokens(folder, max(2000, 20 * run.block_size), run.block_size)
    return Trainer(run, seed, tokens, CPU)
