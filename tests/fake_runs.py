"""A plausible full grid of run and curve files, written without training.

PYTHONPATH=src:tests python -m fake_runs FOLDER
"""

import csv
import json
import math
import shutil
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from resablate import params, reported
from resablate.results import RunKey

REPOSITORY = Path(__file__).parents[1]
FLOOR = 3.3473
LADDER = {"1": FLOOR, "2": 2.4862, "3": 2.0413, "4": 1.7634, "5": 1.6391, "6": 1.6004}
N_LAYER = 6
STEPS = range(0, 601, 50)
LEARNS = {
    ("residualgpt", "full"): 2.2,
    ("nanogpt", "full"): 2.28,
    ("residualgpt", "attn_only"): 2.5,
}
GROWTH = {"full": 1.4, "attn_only": 14.0, "ffn_only": 5.4, "no_res": 0.9}


def keys(grid: params.Grid) -> list[RunKey]:
    """Return the grid's cells in order."""
    return [RunKey(*cell) for cell in product(grid.scale, grid.impl, grid.config, grid.seed)]


def losses(key: RunKey, noise: np.random.Generator) -> list[float]:
    """Return one loss per evaluation, as the paper's configurations go."""
    end = LEARNS.get((key.impl, key.config), FLOOR)
    tau = 120 if key.config == "full" else 60
    plateau = 3.3 if (key.impl, key.config) in LEARNS and key.config != "full" else None
    values = [4.175]
    for step in STEPS[1:]:
        start = plateau if plateau and step > 50 else 4.175
        decay = math.exp(-(step - 50) / 260) if plateau and step > 50 else math.exp(-step / tau)
        scale = 0.02 if key.impl == "nanogpt" or end < 3 else 0.002
        values.append(end + (start - end) * decay + scale * abs(noise.normal()))
    return values


def gradient(key: RunKey, step: int, noise: np.random.Generator) -> float:
    """Return block 0's gradient norm: alive, starving, or exactly zero."""
    if (key.impl, key.config) in LEARNS or step == 0:
        return 0.11 * math.exp(0.3 * noise.normal()) if step else 5.8
    if key.config == "no_res" and step >= 300:
        return 0.0
    return 10 ** (-1 - 6 * min(step, 250) / 250 + 0.2 * noise.normal())


def write_run(root: Path, key: RunKey) -> None:
    """Write a run's metrics and its curve."""
    noise = np.random.default_rng([key.seed, *key.arm.encode()])
    val = losses(key, noise)
    best = min(val)
    growth = GROWTH.get(key.config, 1.0) * math.exp(0.1 * noise.normal())
    curve = []
    for step, loss in zip(STEPS, val, strict=True):
        grad = gradient(key, step, noise)
        row = {"step": step, "lr": 1e-3, "train_loss": loss - 0.02 if step else None}
        row |= {"val_loss": loss, "grad_norm": 2 * grad, "clip_fraction": 0.0}
        row |= {"update_ratio": 1e-3}
        row |= {f"grad_norm_block{i}": grad * 1.5**i for i in range(N_LAYER)}
        row |= {f"hidden_norm_{i}": growth ** (i / N_LAYER) for i in range(N_LAYER + 1)}
        row |= {f"token_cosine_{i}": i / (N_LAYER + 1) for i in range(N_LAYER + 1)}
        curve.append(row | {"effective_rank": 12.5, "adam_eps_share": 0.01})
    run = {
        "status": "finished",
        "best_val_loss": best,
        "best_step": STEPS[val.index(best)],
        "final_val_loss": val[-1],
        "full_val_loss": val[-1] + 0.001,
        "bits_per_byte": (val[-1] + 0.001) / math.log(2),
        "perplexity": math.exp(best),
        "diverged_at": None,
        "n_params": 684_000 if key.impl == "residualgpt" else 690_240,
        "steps": STEPS[-1],
        "n_evaluations": len(STEPS),
        "eval_tokens": 16 * 16 * 64,
        "diagnostics": {
            "hidden_norm_growth": growth,
            "token_cosine": 0.9,
            "effective_rank": 12.5,
            "grad_norm_block0": curve[-1]["grad_norm_block0"],
            "adam_eps_share": 0.01,
        },
    }
    files = key.paths("main")
    for path in files[:2]:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / files.metrics).write_text(json.dumps(run, indent=1))
    with (root / files.curve).open("w", newline="") as file:
        writer = csv.DictWriter(file, curve[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(curve)


def write_params(root: Path, **grid: list[Any]) -> list[RunKey]:
    """Write the repository's params.yaml with axes of the grid replaced; return the cells."""
    yaml = YAML()
    values = yaml.load((REPOSITORY / "params.yaml").read_text())
    values["grid"].update(grid)
    with (root / "params.yaml").open("w") as file:
        yaml.dump(values, file)
    return keys(params.load(root / "params.yaml").grid)


def change_run(root: Path, key: RunKey, **values: object) -> None:
    """Overwrite values of a written run."""
    path = root / key.paths("main").metrics
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def write_data(root: Path, dataset: str, ladder: dict[str, float] | None = None) -> None:
    """Write a data set's document."""
    ladder = ladder or LADDER
    document = {"floor": ladder["1"], "ngram_ladder": ladder, "vocab_size": 65}
    path = root / f"metrics/data/{dataset}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def write_all(root: Path, cells: Iterable[RunKey]) -> None:
    """Write runs, curves, the data documents and the reported values below `root`."""
    (root / reported.REGISTRY).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(REPOSITORY / reported.REGISTRY, root / reported.REGISTRY)
    write_data(root, "shakespeare")
    write_data(root, "owt", {"1": 6.9, "2": 5.8, "3": 5.6})
    for key in cells:
        write_run(root, key)


def make(root: Path, **grid: list[Any]) -> list[RunKey]:
    """Write params.yaml and everything that its grid declares; return the cells."""
    cells = write_params(root, **grid)
    write_all(root, cells)
    return cells


if __name__ == "__main__":
    write_all(Path(), keys(params.load().grid))
