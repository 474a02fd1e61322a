"""Print hashes along two short training runs: python print_training.py NUMERICS FOLDER."""

import hashlib
import json
import os
import sys
from pathlib import Path

from resablate import numerics, params
from resablate.params import Run

SEED = 1337
RUNS = {  # implementation and differences: between them, every operator of the model
    "residualgpt": ("residualgpt", {}),
    "nanogpt": ("nanogpt", {}),
    "state space": (
        "residualgpt", {"mixer": "ssm", "block": "post_ln", "norm": "rmsnorm", "ffn": "swiglu"},
    ),
    "shaped": (
        "residualgpt",
        {
            "attention_pattern": "shaped", "position": "rope", "value_residual": True,
            "init": "orthogonal", "gain": 2.0,
        },
    ),
    "convolution": ("nanogpt", {"mixer": "conv", "block": "parallel", "optimiser": "sgd"}),
}  # fmt: skip


def short_run(kind: str, impl: str, changes: dict[str, object]) -> Run:
    """Return two layers and three updates of `tiny`: all that a step does, at its real widths."""
    run = params.load(Path(__file__).parents[1] / "params.yaml").resolve("tiny", impl, "full")
    short = {
        "n_layer": 2, "steps": 3, "warmup_steps": min(run.warmup_steps, 1), "eval_interval": 3,
        "n_eval_batches": 2, "threads": 0, "numerics": kind,
    }  # fmt: skip
    return Run(**(run.model_dump() | short | changes))


def training(run: Run, folder: Path) -> dict[str, str | None]:
    """Return hashes of losses, gradients, weights and moments; the curve's numbers in hex."""
    from resablate import diagnostics, environment  # noqa: PLC0415 -- torch, after the pins
    from resablate.train import Trainer  # noqa: PLC0415
    from toys import toy_tokens  # noqa: PLC0415

    def put(name, *tensors):
        parts = [t.detach().contiguous().numpy().tobytes() for t in tensors]
        found[f"{trainer.step} {name}"] = hashlib.sha256(b"".join(parts)).hexdigest()[:16]

    device = environment.configure(run)
    trainer = Trainer(run, SEED, toy_tokens(folder, 20_000, run.block_size), device)
    optimiser, found = trainer.optimiser, {}
    while True:
        row = trainer.evaluate() if trainer.is_row() else None
        loss, norm = trainer.gradient()
        put("loss and norm", loss, norm)
        for name, p in optimiser.parameters.items():
            kinds = (optimiser.exp_avg, optimiser.exp_avg_sq)
            moments = [of[name] for of in kinds if of]  # SGD has no second
            put(f"weights and moments of {name}", p, *moments)
            put(f"gradient of {name}", p.grad)
        if row:
            row |= diagnostics.gradient_norms(trainer.model)
            for name, value in row.items():
                found[f"{trainer.step} {name}"] = None if value is None else float(value).hex()
        if trainer.step == run.steps:
            return found
        trainer.update(loss, norm)
        trainer.drain()


if __name__ == "__main__":
    runs = {name: short_run(sys.argv[1], *of) for name, of in RUNS.items()}
    if limit := os.environ.get("AT_MOST"):  # as on a processor without AVX-512
        numerics.PINS["ONEDNN_MAX_CPU_ISA"] = limit
    numerics.pin(runs["residualgpt"])
    found = {name: training(run, Path(sys.argv[2])) for name, run in runs.items()}
    print(json.dumps({f"{name} {key}": x for name in found for key, x in found[name].items()}))
