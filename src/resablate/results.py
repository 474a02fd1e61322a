"""Runs as their files hold them: collected from the declared grid, written to and read from CSV."""

import csv
import io
import json
import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from resablate import paths
from resablate.errors import UserError

ESCAPE_MARGIN = 0.1  # nats below the floor from which a run counts as having left it
STATUSES = ("finished", "diverged")
NOT_RUN = "not_run"  # the status of a planned run without files, where a pipeline allows that
MEASURES = (
    "best_val_loss",
    "best_step",
    "final_val_loss",
    "full_val_loss",
    "bits_per_byte",
    "perplexity",
    "n_params",
    "steps",
    "n_evaluations",
    "eval_tokens",
    "diverged_at",
)
DIAGNOSTICS = (
    "hidden_norm_growth",
    "token_cosine",
    "effective_rank",
    "grad_norm_block0",
    "adam_eps_share",
)
VALUES = (*MEASURES, *DIAGNOSTICS, "escape_step")
KEYS = ("stage", "scale", "impl", "config", "arm", "seed", "status")
INTEGERS = {"best_step", "n_params", "steps", "n_evaluations", "eval_tokens", "diverged_at"} | {
    "escape_step"
}
Number = float | int | None
GRID = "params.yaml's grid"


class RunKey(NamedTuple):
    """A cell of the grid of a pipeline."""

    scale: str
    impl: str
    config: str
    seed: int

    @property
    def arm(self) -> str:
        return f"{self.impl}-{self.config}"

    @property
    def stage(self) -> str:
        """The stage that makes the run, as `dvc repro` takes it."""
        return f"train@{self.scale}-{self.arm}-{self.seed}"

    @property
    def columns(self) -> dict[str, str | int]:
        """What names the run in a table of runs."""
        values = (self.stage, self.scale, self.impl, self.config, self.arm, self.seed)
        return dict(zip(KEYS[:-1], values, strict=True))

    def paths(self, pipeline: str) -> paths.RunPaths:
        return paths.run(pipeline, self.scale, self.arm, self.seed)


class Key(Protocol):
    """A cell of any grid: what names its run, the stage that makes it, and where it lies."""

    seed: int

    @property
    def stage(self) -> str: ...

    @property
    def columns(self) -> dict[str, str | int]: ...

    def paths(self, pipeline: str) -> paths.RunPaths: ...


class AbsentError(UserError):
    """A file of a run is kept by DVC, and not here."""


@dataclass(frozen=True)
class Result:
    """One run: its cell, whether it finished, and its numbers under the names in VALUES."""

    key: Any  # a RunKey, or another Key
    status: str
    values: dict[str, Number]

    def __getitem__(self, name: str) -> Number:
        return self.values[name]


def not_run(key: RunKey) -> Result:
    """Return a planned run that is not there: no number of it is known."""
    return Result(key, NOT_RUN, dict.fromkeys(VALUES))


Curve = dict[str, list[float]]


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Read a JSON object; UserError for a missing or broken file and for NaN or infinity."""

    def refuse(constant: str) -> float:
        raise UserError(f"{path}: holds {constant}, which is not JSON; write null and {remedy}")

    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {remedy}") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); {remedy}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: must hold an object, not {content!r}; {remedy}")
    return content


def read_curve(path: Path, remedy: str) -> Curve:
    """Read a training curve as columns; an empty field becomes NaN."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {remedy}") from None
    except (ValueError, csv.Error) as error:
        raise UserError(f"{path}: not a table ({error}); {remedy}") from None
    if not rows or not {"step", "val_loss"} <= rows[0].keys():
        raise UserError(f"{path}: must have rows, with columns step and val_loss; {remedy}")
    try:
        return {name: [float(row[name] or math.nan) for row in rows] for name in rows[0]}
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: not a table of numbers ({error}); {remedy}") from None


def read_floor(dataset: str) -> dict[str, Any]:
    """Return a data set's `floor` and `ngram_ladder`, nats per token, from its document."""
    path = paths.data_document(dataset)
    remedy = f"run `dvc repro prepare_{dataset}`"
    document = read_json(path, remedy)
    if missing := [key for key in ("floor", "ngram_ladder") if key not in document]:
        raise UserError(f"{path}: lacks {missing[0]}; {remedy}")
    return {key: document[key] for key in ("floor", "ngram_ladder")}


def planned(
    scales: Sequence[str], impls: Sequence[str], configs: Sequence[str], seeds: Sequence[int]
) -> list[RunKey]:
    """Return the cells that a grid's axes declare, the last axis fastest."""
    return [RunKey(*cell) for cell in product(scales, impls, configs, seeds)]


def _files(pipeline: str, keys: Sequence[Key]) -> dict[Path, Key]:
    """Return the files that an aggregate reads, and whose they are."""
    files: dict[Path, Key] = {}
    for key in keys:
        files |= {key.paths(pipeline).metrics: key, key.paths(pipeline).curve: key}
    return files


def refuse_missing(pipeline: str, keys: Sequence[Key], grid: str = GRID) -> None:
    """Refuse to go on while a run of the grid has no files; `grid` says where it is declared."""
    wanted = _files(pipeline, keys)
    missing = [path for path in wanted if not path.is_file()]
    if missing:
        stages = " ".join(dict.fromkeys(wanted[path].stage for path in missing))
        raise UserError(
            f"{len(missing)} files of {grid} are missing:"
            f" {', '.join(map(str, missing))}; make them with: dvc repro {stages}"
        )


def refuse_extra(pipeline: str, keys: Sequence[Key], grid: str = GRID) -> None:
    """Refuse files of runs that are not in the grid: a removed seed must not be averaged."""
    wanted = _files(pipeline, keys)
    folders = (paths.runs(pipeline), paths.curves(pipeline))
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    # Hidden files are DVC's .gitignore and unfinished writes.
    extra = [str(path) for path in found if path not in wanted and not path.name.startswith(".")]
    if extra:
        raise UserError(
            f"{len(extra)} files belong to no run of {grid}; put the grid back, or"
            f" remove them with: rm {shlex.join(extra)}"
        )


def read(pipeline: str, key: Key, floor: float) -> Result:
    """Read one run; `floor` (nats per token) decides its escape_step."""
    path = key.paths(pipeline).metrics
    remedy = f"run `dvc repro -f -s {key.stage}`"
    run = read_json(path, remedy)
    flat = {**run, **run.get("diagnostics", {})}
    if missing := [name for name in ("status", *MEASURES, *DIAGNOSTICS) if name not in flat]:
        raise UserError(f"{path}: lacks {missing[0]}; {remedy}")
    if flat["status"] not in STATUSES:
        allowed = " or ".join(STATUSES)
        raise UserError(f"{path}: status: {flat['status']!r} must be {allowed}; {remedy}")
    if flat["status"] == "finished" and None in (flat["best_val_loss"], flat["final_val_loss"]):
        raise UserError(f"{path}: a finished run must have best_val_loss, final_val_loss; {remedy}")
    for name in (*MEASURES, *DIAGNOSTICS):
        value = flat[name]
        if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
            raise UserError(f"{path}: {name}: {value!r} must be a number or null; {remedy}")
    curve = read_curve(key.paths(pipeline).curve, remedy)
    values = {name: flat[name] for name in (*MEASURES, *DIAGNOSTICS)}
    return Result(key, flat["status"], {**values, "escape_step": escape_step(curve, floor)})


def escape_step(curve: Curve, floor: float) -> int | None:
    """Return the first evaluated step with a loss clearly below the floor; None if never."""
    for step, loss in zip(curve["step"], curve["val_loss"], strict=True):
        if loss < floor - ESCAPE_MARGIN:
            return int(step)
    return None


def runs_text(results: Iterable[Result]) -> str:
    """Return, as CSV, one row a run, floats in full (shortest text that reads back as the bits)."""
    rows = [
        {**run.key.columns, "status": run.status, **{name: run[name] for name in VALUES}}
        for run in results
    ]
    # Runs of two studies may differ in some of their columns.
    columns = dict.fromkeys(name for row in rows for name in row) or (*KEYS, *VALUES)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def read_runs(path: Path) -> list[Result]:
    """Read a file of runs_text."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [_from_row(row) for row in csv.DictReader(file)]
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; run `dvc repro aggregate`") from None
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise UserError(
            f"{path}: not a table of runs ({error!r}); run `dvc repro -f -s aggregate`"
        ) from None


def _from_row(row: dict[str, str]) -> Result:
    values: dict[str, Number] = {}
    for name in VALUES:
        convert = int if name in INTEGERS else float
        values[name] = convert(row[name]) if row[name] else None
    key = RunKey(row["scale"], row["impl"], row["config"], int(row["seed"]))
    return Result(key, row["status"], values)
