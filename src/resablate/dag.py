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

from resablate import paths
from resablate.errors import UserError

FILES = (Path("dvc.yaml"), Path("studies/dvc.yaml"), Path("paper/dvc.yaml"))
CHUNK = 1 << 20  # bytes read at a time
REFERENCE = re.compile(r"\$\{(item\.)?([\w.]+)\}")


class Cell(NamedTuple):
    """A cell, with paths from the repository's root."""

    file: Path  # the pipeline
    stage: str
    item: dict[str, Any]  # axis -> value
    cmd: str
    deps: list[str]
    params: list[str]  # keys of the root's params.yaml
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
            raise UserError(f"params.yaml: has no {key}, which a stage tracks")
        found = found[part]
    return found


def cells(file: Path) -> list[Cell]:
    """Return the cells of a pipeline, in its order."""
    grids = load(file.with_name("params.yaml"))
    found = []
    for stage, entry in load(file).get("stages", {}).items():
        axes = entry.get("matrix", {})
        values = [_axis(values, grids) for values in axes.values()]
        if axes:
            found += [
                _cell(file, stage, entry, dict(zip(axes, at, strict=True)))
                for at in product(*values)
            ]
    return found


def _axis(values: Any, grids: Mapping[str, Any]) -> list[Any]:
    """Return an axis's values: written out, or a reference to a grid."""
    if isinstance(values, str) and (match := REFERENCE.fullmatch(values)):
        return look_up(grids, match[2])
    return values


def _cell(file: Path, stage: str, entry: Mapping[str, Any], item: dict[str, Any]) -> Cell:
    def filled(text: str) -> str:
        return REFERENCE.sub(lambda match: str(look_up(item, match[2])), text)

    root = Path(os.path.normpath(file.parent / entry.get("wdir", ".")))

    def placed(name: str) -> list[str]:
        listed = (next(iter(x)) if isinstance(x, Mapping) else x for x in entry.get(name, ()))
        return [(root / filled(path)).as_posix() for path in listed]

    keys = [filled(key) for key in entry.get("params", ()) if isinstance(key, str)]
    return Cell(file, stage, item, filled(entry["cmd"]), placed("deps"), keys, placed("outs"))


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
    values = load(paths.PARAMS)
    return {
        "cmd": cell.cmd,
        "deps": {dep: md5(Path(dep)) for dep in cell.deps},
        "params": {key: look_up(values, key) for key in cell.params},
    }


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Name what differs between two `inputs`."""
    found = ["its command"] if then["cmd"] != now["cmd"] else []
    for kind in ("deps", "params"):
        names = {**now[kind], **then[kind]}
        found += [n for n in names if then[kind].get(n) != now[kind].get(n)]
    return found
