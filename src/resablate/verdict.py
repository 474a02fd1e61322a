"""Whether the runs came out as committed: what a sweep says at its end.

A run is compared where its command, parameters, code and data are those of the committed dvc.lock;
then its outs are the same bits, or its numbers and its environment are set beside the committed
ones.
"""

import csv
import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resablate import paths
from resablate.diverge import differences
from resablate.lockfile import load_lock, parse_lock
from resablate.snapshot import OTHER_OWNER

NUMBERS = ("best_val_loss", "final_val_loss")
INPUTS = ("cmd", "deps", "params")


def verdict(file: Path) -> list[str]:
    """Return the lines that say how the runs of a dvc.yaml compare with the committed ones.

    None where nothing is committed, or there is no git.
    """
    if "dubious ownership" in _git("rev-parse", "HEAD").stderr:
        return [f"not compared with the committed runs: {OTHER_OWNER}"]
    lock = file.with_suffix(".lock")
    committed, now = parse_lock(_committed(lock)), load_lock(lock)
    runs = {name: stage for name, stage in now.items() if _document(stage)}
    known = {name: stage for name, stage in runs.items() if name in committed}
    alike = {
        name: stage
        for name, stage in known.items()
        if all(stage.get(key) == committed[name].get(key) for key in INPUTS)
    }
    if not known:
        return []
    changed = [name for name, stage in alike.items() if stage["outs"] != committed[name]["outs"]]
    same = len(alike) - len(changed)
    lines = []
    if alike:
        lines.append(
            f"reproduced: {same} of {len(alike)} runs are bit-identical to the committed {lock}"
        )
    if others := len(runs) - len(alike):
        lines.append(
            f"not compared: {others} runs, committed with other code, parameters or data, or not"
        )
    return lines + [line for name in changed for line in _difference(name, alike[name])]


def _difference(name: str, stage: dict[str, Any]) -> list[str]:
    """Return how a run's numbers and environment differ from the committed ones."""
    document = _document(stage)
    new, old = _json(_text(document)), _committed_numbers(name, document)
    numbers = [
        f"{key} {old[key]:.6g} -> {new[key]:.6g} ({new[key] - old[key]:+.2g})"
        for key in NUMBERS
        if isinstance(old.get(key), float) and isinstance(new.get(key), float)
    ]
    facts = differences(_environment(document, _committed), _environment(document, _text)) or {}
    told = [f"{key}: {a} -> {b}" for key, (a, b) in facts.items()]
    return [
        f"  {name} differs: {'; '.join(numbers) or 'numbers unknown'}",
        f"    environment: {'; '.join(told) or 'no recorded fact differs'}",
    ]


def _committed_numbers(name: str, document: Path) -> dict[str, Any]:
    """Return a run's committed losses: from its document if that is in git, else from runs.csv."""
    if text := _committed(document):
        return _json(text)
    for row in csv.DictReader(io.StringIO(_committed(paths.RUNS_CSV))):
        if row["stage"] == name:
            return {key: float(row[key]) for key in NUMBERS if row[key]}
    return {}


def _environment(document: Path, read: Callable[[Path], str]) -> dict[str, Any] | None:
    beside = _json(read(paths.ENVIRONMENTS / document.relative_to("metrics")))
    return _json(read(paths.ENVIRONMENTS / f"{beside['environment']}.json")) if beside else None


def _document(stage: dict[str, Any]) -> Path | None:
    """Return the metrics file of a stage that is a run, else None."""
    outs = [Path(out["path"]) for out in stage.get("outs", ())]
    found = [p for p in outs if p == paths.trial().metrics or p.is_relative_to("metrics/runs")]
    return found[0] if found else None


def _text(path: Path) -> str:
    """Return a file's text here, empty if there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _committed(path: Path) -> str:
    """Return a file's text in the last commit, empty if there is none."""
    done = _git("show", f"HEAD:./{path.as_posix()}")
    return done.stdout if done.returncode == 0 else ""


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git, which may be missing; its messages are in English."""
    command = ("git", *arguments)
    try:
        return subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=os.environ | {"LC_ALL": "C"},
            check=False,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", "")


def _json(text: str) -> dict[str, Any]:
    try:
        return json.loads(text) if text else {}
    except ValueError:  # damaged by hand: as if it were not there
        return {}
