"""Every dvc.yaml of the repository beside its dvc.lock: what each stage is, and what it last read.

Nothing is run and no data is needed: git, dvc.yaml, dvc.lock and the params files are enough.
"""

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dvc.exceptions import DvcException
from dvc.parsing import DataResolver
from dvc.repo import Repo
from dvc.utils.serialize import load_yaml

from resablate.errors import UserError
from resablate.lockfile import load_lock
from resablate.workfiles import Files

MODULE = re.compile(r"python -m (resablate\.(?:stages|analyses)\.\w+)(.*)")
RUN_DOCUMENT = re.compile(r"metrics/(runs/.*|trial)\.json")


@dataclass(frozen=True)
class Declared:
    """A stage as dvc.yaml says now. Paths are from the repository's root."""

    cmd: str
    deps: frozenset[str]
    params: Mapping[str, Mapping[str, Any]]  # file -> key -> value now; no entry: no such key
    outs: Mapping[str, bool]  # path -> whether DVC caches it; else it is kept in git


@dataclass(frozen=True)
class Locked:
    """A stage as dvc.lock says that it last ran. Paths are from the repository's root."""

    cmd: str
    deps: Mapping[str, str]  # path -> MD5
    params: Mapping[str, Mapping[str, Any]]
    outs: Mapping[str, str]
    sizes: Mapping[str, int] = field(default_factory=dict)  # of outs, bytes


@dataclass(frozen=True)
class Stage:
    """A stage of a dvc.yaml, of its dvc.lock, or of both."""

    file: str  # its dvc.yaml, from the root
    name: str
    declared: Declared | None
    locked: Locked | None

    @property
    def address(self) -> str:
        """The stage as `dvc repro` takes it."""
        return self.name if self.file == "dvc.yaml" else f"{self.file}:{self.name}"

    @property
    def lock(self) -> str:
        """The dvc.lock that belongs to it."""
        return self.file.removesuffix(".yaml") + ".lock"

    @property
    def outs(self) -> Iterable[str]:
        return (self.declared or self.locked).outs

    @property
    def document(self) -> str | None:
        """The metrics file of a stage that is a training run, else None."""
        return next((out for out in self.outs if RUN_DOCUMENT.fullmatch(out)), None)

    @property
    def module(self) -> tuple[str, list[str]] | None:
        """The module of this package that it runs, and the module's arguments."""
        match = MODULE.search((self.declared or self.locked).cmd)
        return (match[1], match[2].split()) if match else None


class Repository:
    """The stages of all pipelines below a root, and which of them makes a file."""

    def __init__(self, root: Path) -> None:
        self.root, self.files = root, Files(root)
        self._values: dict[str, Any] = {}  # of params files
        self._within: dict[str, dict[str, Stage]] = {}
        found = [made for path in pipelines(root) for made in self._read(path)]
        self.stages = {stage.address: stage for stage in found}
        if not self.stages:
            raise UserError(f"{root.resolve()}: no stages; go to the repository's root")

    @cached_property
    def producers(self) -> dict[str, Stage]:
        """The stage that makes each out; a declared one before one that only dvc.lock has."""
        ranked = sorted(self.stages.values(), key=lambda stage: stage.declared is not None)
        return {out: stage for stage in ranked for out in stage.outs}

    def made_within(self, path: str) -> Mapping[str, Stage]:
        """Return the outs that are `path`, or lie in it, or that it lies in, with their makers."""
        if path not in self._within:
            if path in self.producers:
                self._within[path] = {path: self.producers[path]}
            else:
                self._within[path] = {
                    out: stage
                    for out, stage in self.producers.items()
                    if out.startswith(f"{path}/") or path.startswith(f"{out}/")
                }
        return self._within[path]

    def ancestors(self, stage: Stage) -> list[Stage]:
        """Return the stages that one needs, at any distance, in their order in dvc.yaml."""
        needed: set[str] = set()
        waiting = [stage]
        while waiting:
            current = waiting.pop()
            for dep in current.locked.deps if current.locked else current.declared.deps:
                makers = {maker.address: maker for maker in self.made_within(dep).values()}
                waiting += [maker for name, maker in makers.items() if name not in needed]
                needed |= makers.keys()
        return [other for address, other in self.stages.items() if address in needed]

    def _read(self, path: Path) -> Iterator[Stage]:
        """Yield the stages of a dvc.yaml and of its dvc.lock."""
        file = path.relative_to(self.root).as_posix()
        declared, locked = self._resolve(path), load_lock(path.with_suffix(".lock"))
        for name in dict.fromkeys((*declared, *locked)):
            raw, entry = declared.get(name), locked.get(name)
            # A stage that is gone from dvc.yaml had the folder of those that are there.
            wdir = (raw or next(iter(declared.values()), {})).get("wdir", ".")
            base = posixpath.normpath(posixpath.join(posixpath.dirname(file), wdir))
            now = self._declared(raw, base) if raw else None
            yield Stage(file, name, now, _locked(entry, base) if entry else None)

    def _resolve(self, path: Path) -> dict[str, Any]:
        """Return the stages of a dvc.yaml with every ${} and matrix filled in, by DVC itself."""
        try:
            with Repo(str(self.root), uninitialized=True) as repo:
                content = load_yaml(str(path))
                return DataResolver(repo, str(path.parent.resolve()), content).resolve()["stages"]
        except DvcException as error:
            raise UserError(f"{path}: {error}") from None

    def _declared(self, raw: Mapping[str, Any], base: str) -> Declared:
        outs = {
            _join(base, path): options.get("cache", True)
            for kind in ("outs", "metrics", "plots")
            for path, options in map(_option, raw.get(kind, ()))
        }
        wanted: dict[str, list[str]] = {}
        for item in raw.get("params", ()):
            file, keys = ("params.yaml", [item]) if isinstance(item, str) else _option(item)
            wanted[_join(base, file)] = [*wanted.get(_join(base, file), ()), *(keys or ())]
        return Declared(
            cmd=_command(raw["cmd"]),
            deps=frozenset(_join(base, path) for path, _ in map(_option, raw.get("deps", ()))),
            params={file: self.values(file, keys) for file, keys in wanted.items()},
            outs=outs,
        )

    def values(self, file: str, keys: Iterable[str]) -> dict[str, Any]:
        """Return values of a params file by dotted key; those that are not there are left out."""
        if file not in self._values:
            path = self.root / file
            self._values[file] = load_yaml(str(path)) if path.is_file() else {}
        found = {}
        for key in keys or self._values[file]:
            value: Any = self._values[file]
            for part in key.split("."):
                value = value.get(part, ...) if isinstance(value, dict) else ...
            if value is not ...:
                found[key] = value
        return found


def pipelines(root: Path) -> list[Path]:
    """Return every dvc.yaml below a root, the root's own first; hidden folders are left out."""
    found = []
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if "dvc.yaml" in names:
            found.append(Path(folder, "dvc.yaml"))
    return found


def _locked(entry: Mapping[str, Any], base: str) -> Locked:
    outs = {_join(base, out["path"]): out for out in entry.get("outs", ())}
    return Locked(
        cmd=_command(entry["cmd"]),
        deps={_join(base, dep["path"]): dep.get("md5", "") for dep in entry.get("deps", ())},
        params={_join(base, file): values for file, values in entry.get("params", {}).items()},
        outs={path: out.get("md5", "") for path, out in outs.items()},
        sizes={path: out.get("size", 0) for path, out in outs.items()},
    )


def _command(cmd: str | list[str]) -> str:
    return cmd if isinstance(cmd, str) else "\n".join(cmd)


def _option(item: str | Mapping[str, Any]) -> tuple[str, Any]:
    """Return an entry of dvc.yaml as a path and its options."""
    return (item, {}) if isinstance(item, str) else next(iter(item.items()))


def _join(base: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(base, path))
