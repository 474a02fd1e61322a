"""The cells of the pipelines, read from their files: this runs where DVC is not installed.

A cell is one point of a stage's `matrix`. Hashes are those that dvc.lock would hold.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from resablate import paperstudies, paths, studies
from resablate.errors import UserError
from resablate.params import Params, Run
from resablate.studies import Studies

STUDIES = Path("studies/dvc.yaml")
PAPER = Path("paper/dvc.yaml")
FILES = (Path("dvc.yaml"), STUDIES, PAPER)
CHUNK = 1 << 20  # bytes read at a time
REFERENCE = re.compile(r"\$\{(item\.)?([\w.]+)\}")


class Cell(NamedTuple):
    """A cell, with paths from the repository's root."""

    file: Path  # the pipeline
    stage: str
    item: dict[str, Any]  # axis -> value
    cmd: str
    deps: list[str]
    params: list[str]  # keys of the root's params.yaml, or FILE:KEY
    outs: list[str]

    @property
    def name(self) -> str:
        """The stage's name in its file, `train@gpt10m-residualgpt-full-1337`."""
        return f"{self.stage}@{'-'.join(str(value) for value in self.item.values())}"

    @property
    def address(self) -> str:
        """The name as `dvc repro` takes it."""
        return self.name if self.file == Path("dvc.yaml") else f"{self.file}:{self.name}"


def load(path: Path) -> dict[str, Any]:
    """Return a YAML file's mapping, as DVC reads it; an empty one where there is no file."""
    if not path.is_file():
        return {}
    return YAML(typ="safe", pure=True).load(io.StringIO(path.read_text(encoding="utf-8"))) or {}


def look_up(values: Mapping[str, Any], key: str) -> Any:
    """Return the value under a dotted key; UserError where there is none."""
    found: Any = values
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            raise UserError(f"{key}: a pipeline's stage uses it, and its params.yaml lacks it")
        found = found[part]
    return found


def cells(file: Path) -> list[Cell]:
    """Return the cells of a pipeline, in its order."""
    pipeline = load(file)
    grids: dict[str, Any] = {}
    for name in ("params.yaml", *pipeline.get("vars", ())):  # files that its ${} look into
        grids |= load(file.with_name(name))
    found = []
    for stage, entry in pipeline.get("stages", {}).items():
        axes = entry.get("matrix", {})
        values = [_axis(values, grids) for values in axes.values()]
        if axes:
            items = (dict(zip(axes, at, strict=True)) for at in product(*values))
            found += [_cell(file, stage, entry, item, grids) for item in items]
    return found


def _axis(values: Any, grids: Mapping[str, Any]) -> list[Any]:
    """Return an axis's values: written out, or a reference to a grid."""
    if isinstance(values, str) and (match := REFERENCE.fullmatch(values)):
        return look_up(grids, match[2])
    return values


def _cell(
    file: Path,
    stage: str,
    entry: Mapping[str, Any],
    item: dict[str, Any],
    grids: Mapping[str, Any],
) -> Cell:
    root = Path(os.path.normpath(file.parent / entry.get("wdir", ".")))

    def filled(text: str) -> str:
        return REFERENCE.sub(lambda m: str(look_up(item if m[1] else grids, m[2])), text)

    def placed(name: str) -> list[str]:
        listed = (next(iter(x)) if isinstance(x, Mapping) else x for x in entry.get(name, ()))
        return [(root / filled(path)).as_posix() for path in listed]

    keys: list[str] = []
    for tracked in entry.get("params", ()):
        of_files = tracked if isinstance(tracked, Mapping) else {"": [tracked]}
        for other, names in of_files.items():
            prefix = f"{other}:" if other else ""
            keys += [f"{prefix}{filled(name)}" for name in names]
    cmd = " ".join(filled(entry["cmd"]).split())
    return Cell(file, stage, item, cmd, placed("deps"), keys, placed("outs"))


def runs(cells: Sequence[Cell], declared: Params) -> list[tuple[str, str, Run]]:
    """Return the scale, the implementation and the run of each cell."""
    files = {cell.file for cell in cells}
    known = {STUDIES: studies.load()} if STUDIES in files else {}
    if PAPER in files:
        known[PAPER] = paperstudies.load(declared)
    return [_run(cell, declared, known.get(cell.file)) for cell in cells]


def _run(cell: Cell, declared: Params, known: Studies | None) -> tuple[str, str, Run]:
    if known and cell.stage in known.studies:
        levels = [str(value) for axis, value in cell.item.items() if axis != "seed"]
        arm = known.arm(cell.stage, levels)
        scale, impl, _ = known.study(cell.stage).cell(arm.levels)
        return scale, impl, known.resolve(declared, cell.stage, arm)
    scale, impl, config = (str(cell.item.get(axis)) for axis in ("scale", "impl", "config"))
    return scale, impl, declared.resolve(scale, impl, config)


def select(targets: Sequence[str], default: Sequence[Path] = FILES) -> list[Cell]:
    """Return the cells that targets name: of the pipelines in `default` without any.

    A target is a pipeline (`paper/dvc.yaml`), or a pattern for an address, a name or what stands
    behind its @ (`train@gpt10m-*`, `gpt10m-residualgpt-full-1337`).
    """
    every = [cell for file in FILES for cell in cells(file)]
    if not targets:
        return [cell for cell in every if cell.file in default]
    chosen: list[Cell] = []
    for target in targets:
        found = [cell for cell in every if _matches(cell, target)]
        if not found:
            files = ", ".join(str(file) for file in FILES if file.is_file())
            raise UserError(f"{target}: names no cell of {files}; see `dvc stage list`")
        chosen += [cell for cell in found if cell not in chosen]
    return chosen


def _matches(cell: Cell, target: str) -> bool:
    names = (cell.address, f"{cell.file}:{cell.name}", cell.name, cell.name.partition("@")[2])
    return target == str(cell.file) or any(fnmatchcase(name, target) for name in names)


def md5(path: Path) -> str | None:
    """Return a file's or a folder's hash as dvc.lock has it; None for what is not there."""
    if path.is_file():
        digest = hashlib.md5(usedforsecurity=False)
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
        return digest.hexdigest()
    if not path.is_dir():
        return None
    listed = [{"md5": md5(p), "relpath": p.relative_to(path).as_posix()} for p in _walk(path)]
    listed.sort(key=lambda entry: entry["relpath"])
    text = json.dumps(listed, sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() + ".dir"


def _walk(folder: Path) -> Iterator[Path]:
    """Yield a folder's files but the hidden ones, which .dvcignore leaves out."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            yield path


def inputs(cell: Cell) -> dict[str, Any]:
    """Return what decides a cell's outs: its command, and its deps' hashes and params' values."""
    values: dict[str, Any] = {}
    found = {}
    for tracked in cell.params:
        file, _, key = tracked.rpartition(":")
        file = file or str(paths.PARAMS)
        if file not in values:
            values[file] = load(Path(file))
        found[tracked] = look_up(values[file], key)
    return {
        "cmd": cell.cmd,
        "deps": {dep: md5(Path(dep)) for dep in cell.deps},
        "params": found,
    }


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Name what differs between two `inputs`."""
    found = ["its command"] if then["cmd"] != now["cmd"] else []
    for kind in ("deps", "params"):
        names = {**now[kind], **then[kind]}
        found += [n for n in names if then[kind].get(n) != now[kind].get(n)]
    return found
