"""Exact resume, and the weights a run leaves behind.

A state file is a safetensors file with its sha256 behind it: never a pickle, written whole or not
at all, and a damaged one is set aside and named instead of being trusted. It lies outside the
stage's outs, in `.resume/` of the main working copy, under a key that hashes everything that
decides the run: code, parameters, seed, data, PyTorch's version and what the machine adds.
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save
from torch import Tensor

from resablate import environment, numerics, paths
from resablate.files import write_bytes
from resablate.model import GPT
from resablate.optimiser import AdamW
from resablate.params import Run

DIGEST_BYTES = 32


class State(NamedTuple):
    """What a run needs to go on: named tensors, and a JSON document of the rest."""

    tensors: dict[str, Tensor]
    document: dict[str, Any]


def run_key(run: Run, seed: int, tokens: dict[str, str], device: torch.device) -> str:
    """Return the hash of all that decides a run's bits."""
    modules = [m for name, m in sorted(sys.modules.items()) if name.startswith("resablate")]
    code = [
        hashlib.sha256(Path(m.__file__).read_bytes()).hexdigest() for m in modules if m.__file__
    ]
    machine = _machine(run, device)
    decides = [run.model_dump(), seed, tokens, code, torch.__version__, device.type, machine]
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:32]


def _machine(run: Run, device: torch.device) -> list[str | None]:
    """Return what a run's bits take from this machine: a portable run's only from its pins."""
    ranks = os.environ.get("WORLD_SIZE", "1")  # set by torchrun
    pins = [ranks, *(os.environ.get(name) for name in numerics.PINS)]
    if run.numerics == "portable":
        return pins
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return [*pins, environment.cpu_name(), torch.backends.cpu.get_cpu_capability(), gpu]


def state_path(key: str) -> Path:
    """Return where a run's state lies: in the main working copy, also for queued experiments."""
    return paths.main_root() / ".resume" / f"{key}.state"


def collect(optimiser: AdamW) -> dict[str, Tensor]:
    """Return the tensors of model and optimiser by name."""
    kinds = _kinds(optimiser)
    return {f"{kind}.{name}": t for kind, of in kinds.items() for name, t in of.items()}


@torch.no_grad()
def restore(tensors: dict[str, Tensor], optimiser: AdamW) -> None:
    """Put the tensors of `collect` back."""
    for kind, of in _kinds(optimiser).items():
        for name, tensor in of.items():
            tensor.copy_(tensors[f"{kind}.{name}"])


def _kinds(optimiser: AdamW) -> dict[str, dict[str, Tensor]]:
    return {
        "model": optimiser.parameters,
        "exp_avg": optimiser.exp_avg,
        "exp_avg_sq": optimiser.exp_avg_sq,
    }


def write_state(path: Path, state: State) -> None:
    """Write a state whole or not at all."""
    tensors = {name: t.detach().cpu().contiguous() for name, t in state.tensors.items()}
    content = save(tensors, {"document": json.dumps(state.document)})
    write_bytes(path, content + hashlib.sha256(content).digest())


def read_state(path: Path) -> State | None:
    """Return a state, or None where there is none; a damaged file is set aside and named."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    body, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        aside = path.with_suffix(".damaged")
        path.replace(aside)
        print(f"warning: {path.name} is damaged; set aside as {aside}, starting anew", flush=True)
        return None
    header = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])
    return State(load(body), json.loads(header["__metadata__"]["document"]))


def write_weights(path: Path, model: GPT, vocab_sha256: str) -> None:
    """Write the weights (a tied matrix once), with what is needed to load them."""
    document = {"run": model.run.model_dump(), "vocab_sha256": vocab_sha256}
    weights = {name: p.detach().cpu().contiguous() for name, p in model.named_parameters()}
    # One key: safetensors writes several in an order that changes from call to call.
    write_bytes(path, save(weights, {"resablate": json.dumps(document)}))
