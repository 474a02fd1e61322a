"""Plausible runs of every study, written without training.

PYTHONPATH=src:tests python -m fake_studies FOLDER
"""

import csv
import json
import math
import shutil
import sys
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ruamel.yaml import YAML

import fake_runs
from resablate import params, paths, reported, studies
from resablate.results import RunKey

FLOOR = fake_runs.FLOOR
FLOORS = {"shakespeare": FLOOR, "owt": 6.9}
N_LAYER = 6
CONFIGS = ["full", "attn_only", "ffn_only", "no_res"]
SEEDS = [1337, 42, 123]


class Outcome(NamedTuple):
    """How a run goes: its last loss, and the step at which it leaves the floor (None: never)."""

    end: float
    escape: int | None = 100


World = Callable[[str, studies.Arm, params.Run, int], Outcome]


def ended(config: str) -> Outcome:
    """Return what the four configurations do in the base."""
    ends = {"full": 2.42, "attn_only": 2.57}
    return Outcome(ends[config], 100) if config in ends else Outcome(FLOOR + 0.005, None)


def write_run(
    root: Path, files: paths.RunPaths, run: params.Run, outcome: Outcome, seed: int, **extra: Any
) -> None:
    """Write a run's metrics and its curve; `extra` columns replace the curve's."""
    noise = np.random.default_rng([seed, *str(files.metrics).encode()])
    end = outcome.end + 0.003 * abs(noise.normal())
    rows = []
    for step in range(0, run.steps + 1, run.eval_interval):
        share = step / run.steps
        rows.append({"step": step, "lr": run.lr, "train_loss": 3.0 if step else None})
        rows[-1] |= {"val_loss": _loss(step, run, end, outcome.escape)}
        rows[-1] |= _columns(share, outcome.escape is not None, noise) | extra
    losses = [row["val_loss"] for row in rows]
    best = min(losses)
    document = {
        "status": "finished",
        "best_val_loss": best,
        "best_step": rows[losses.index(best)]["step"],
        "final_val_loss": losses[-1],
        "full_val_loss": losses[-1] + 0.001,
        "bits_per_byte": losses[-1] / math.log(2),
        "perplexity": math.exp(best),
        "diverged_at": None,
        "n_params": 683_616,
        "steps": run.steps,
        "n_evaluations": len(rows),
        "eval_tokens": 20_480,
        "diagnostics": {
            "hidden_norm_growth": 2.0,
            "token_cosine": rows[-1]["token_cosine_6"],
            "effective_rank": 12.5,
            "grad_norm_block0": rows[-1]["grad_norm_block0"],
            "adam_eps_share": 0.01,
        },
    }
    for path in files[:2]:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / files.metrics).write_text(json.dumps(document))
    with (root / files.curve).open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _loss(step: int, run: params.Run, end: float, escape: int | None) -> float:
    """Return a loss that falls to the floor within one evaluation and leaves it at `escape`."""
    floor = FLOORS[run.dataset]
    if step == 0:
        return floor + 0.8
    if escape is None or step < escape:
        return max(floor + 0.002, end)
    every = run.eval_interval
    progress = (step - escape + every) / (run.steps - escape + every)
    first = floor - 0.15
    return end + (first - end) * (1 - progress) if end < first else end


def _columns(share: float, learns: bool, noise: np.random.Generator) -> dict[str, Any]:
    grad = 0.4 if learns else 10 ** (0.5 - 7 * min(1.0, 2 * share))
    grad *= math.exp(0.1 * noise.normal())
    columns: dict[str, Any] = {"clip_fraction": 0.1, "grad_norm": 2 * grad}
    for layer in range(N_LAYER + 1):
        columns[f"hidden_norm_{layer}"] = 1.0 + layer
        columns[f"token_cosine_{layer}"] = (layer / 20 if learns else layer / 6.2) * (0.5 + share)
        columns[f"effective_rank_{layer}"] = 20 - layer if learns else 20 / (1 + layer)
    for layer in range(N_LAYER):
        columns[f"grad_norm_block{layer}"] = grad * 1.2**layer
        columns[f"attention_self_{layer}"] = 0.08 + (0.1 * share if learns else 0)
        for matrix in ("q", "k"):
            columns[f"grad_norm_block{layer}_{matrix}"] = grad * 0.02
        for matrix in ("v", "proj", "up", "down"):
            columns[f"grad_norm_block{layer}_{matrix}"] = grad * 0.4
    started = share > 0
    return columns | {
        "update_ratio": 1e-3 if started else None,
        "adam_eps_share": (1e-3 if learns else 0.4) if started else None,
        "norm_var_over_eps": 1e4 if learns else 50,
    }


def fraction() -> dict[str, dict[str, Any]]:
    """Return the 16 points of a 2^(6-2) fraction: E = T S M, C = S M W."""
    points = {}
    for t, s, m, w in product((False, True), repeat=4):
        e, c = t ^ s ^ m, s ^ m ^ w
        points[f"p{len(points) + 1:02}"] = {
            "tie_weights": t,
            "scale_residual_init": s,
            "attention": "manual" if m else "sdpa",
            "eval_batches": "redrawn" if e else "fixed",
            "warmup_steps": 200 if w else 0,
            "schedule": "cosine" if c else "constant",
        }
    return points


def study(axes: dict[str, list[str]], seed: Iterable[int] = SEEDS, **base: str) -> dict[str, Any]:
    """Return a study's section of studies/params.yaml."""
    defaults = {"scale": "tiny", "impl": "residualgpt", "config": "attn_only"}
    return {**defaults, **base, "axes": axes, "seed": list(seed)}


def write_params(root: Path, sections: dict[str, Any], differences: dict[str, Any]) -> None:
    """Write params.yaml as the repository has it, and a studies/params.yaml of these studies."""
    fake_runs.write_params(root)
    (root / studies.FILE).parent.mkdir(exist_ok=True)
    with (root / studies.FILE).open("w") as file:
        YAML().dump({"studies": sections, "differences": differences}, file)


def copy_params(root: Path) -> None:
    """Copy the repository's params.yaml, studies/params.yaml and reported values."""
    for path in (paths.PARAMS, studies.FILE, reported.REGISTRY):
        (root / path).parent.mkdir(exist_ok=True)
        shutil.copy(fake_runs.REPOSITORY / path, root / path)


def write_study(root: Path, name: str, world: World) -> None:
    """Write every run of a declared study, as `world` has them end."""
    resolved, declared = params.load(root / paths.PARAMS), studies.load(root / studies.FILE)
    for arm in declared.arms(name):
        run = declared.resolve(resolved, name, arm)
        for seed in declared.study(name).seed:
            files = paths.run(name, declared.study(name).scale, arm.name, seed)
            write_run(root, files, run, world(name, arm, run, seed), seed)


def write_main(root: Path, outcome: Callable[[RunKey], Outcome] | None = None) -> None:
    """Write the root pipeline's runs at `tiny`, and the data documents."""
    fake_runs.write_data(root, "shakespeare")
    fake_runs.write_data(root, "owt", {"1": 6.9, "2": 5.8, "3": 5.6})
    resolved = params.load(root / "params.yaml")
    for key in fake_runs.keys(resolved.grid):
        run = resolved.resolve(key.scale, key.impl, key.config)
        on_floor = key.impl == "nanogpt" and key.config == "attn_only"
        of = outcome(key) if outcome else ended("no_res" if on_floor else key.config)
        write_run(root, key.paths("main"), run, of, key.seed)


def base(study: str, arm: studies.Arm, run: params.Run, seed: int) -> Outcome:
    """Return a world in which only the skips matter."""
    if run.attn_skip == 0:
        return ended("ffn_only")
    return ended("full" if run.ffn_skip else "attn_only")


def make(root: Path, *names: str, world: World = base) -> None:
    """Write the repository's parameters, the root pipeline's runs and those of named studies."""
    copy_params(root)
    write_main(root)
    for name in names:
        write_study(root, name, world)


def make_own(
    root: Path, sections: dict[str, Any], differences: dict[str, Any], world: World
) -> None:
    """Do the same for studies of the test's own."""
    write_params(root, sections, differences)
    write_main(root)
    for name in sections:
        write_study(root, name, world)


if __name__ == "__main__":
    make(Path(sys.argv[1]), *studies.load().studies)
