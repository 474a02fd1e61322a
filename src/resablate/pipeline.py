"""What DVC knows of a pipeline: its stages, which of them are stale, the order of dvc.lock."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import networkx as nx
from dvc.dvcfile import load_file
from dvc.exceptions import DvcException
from dvc.lock import LockError
from dvc.repo import Repo, lock_repo
from dvc.repo.index import Index
from dvc.scm import SCMError
from dvc.stage import Stage

from resablate import one_stage
from resablate.errors import UserError
from resablate.files import write_text


class BusyError(Exception):
    """Another DVC process holds the repository's lock, or works on a stage's files."""


class Plan(NamedTuple):
    """The stages that were asked for and what they need, by their DVC addresses."""

    names: list[str]  # in dvc.yaml's order
    above: dict[str, set[str]]  # all ancestors of each, at any distance
    stale: set[str]  # what `dvc repro` would look at again
    results: list[str]  # outs of this pipeline that are kept in git
    files: list[Path]  # every dvc.yaml that holds one of the stages


class Cells(NamedTuple):
    """What another machine needs to run cells: DVC's cache, and what to take out of it for each."""

    inputs: dict[str, list[str]]
    cache: str


@contextmanager
def repository() -> Iterator[Repo]:
    """Open the repository under DVC's lock; DVC's complaints become BusyError or UserError."""
    try:
        with Repo() as repo, lock_repo(repo):
            yield repo
    except LockError as error:
        raise BusyError(str(error)) from None
    except SCMError as error:
        raise UserError(
            f"{error}; DVC needs git: clone the repository, or make this copy one with: git init"
        ) from None
    except DvcException as error:
        detail = f": {error.__cause__}" if error.__cause__ else ""
        raise UserError(f"{error}{detail}") from None


def plan(file: Path, targets: Sequence[str] = (), known: Collection[str] = ()) -> Plan:
    """Return the stages of a dvc.yaml, or those that `targets` name, with all their ancestors.

    A target is a stage (`train@tiny-residualgpt-full-1337`), a group (`train`) or a pattern
    (`train@*-1337`). Stages in `known` are not looked at: their state is the caller's to know.
    """
    with repository() as repo:
        graph = _index(repo, file).graph
        asked = _select([stage for stage in graph if _file(stage) == file], file, targets)
        wanted = set(asked).union(*(nx.descendants(graph, stage) for stage in asked))
        stages = [stage for stage in graph if stage in wanted]
        above = {
            stage.addressing: {other.addressing for other in nx.descendants(graph, stage)}
            for stage in stages
        }
        return Plan(
            names=list(above),
            above=above,
            stale={s.addressing for s in stages if s.addressing not in known and s.status()},
            results=[
                os.path.relpath(out.fs_path)
                for stage in asked
                if above[stage.addressing]
                for out in stage.outs
                if not out.use_cache
            ],
            files=list(dict.fromkeys(_file(stage) for stage in stages)),
        )


def cells(names: Collection[str]) -> Cells:
    """Return those of the stages that the run-cache can bring home: cells of a matrix, all of
    whose outs are cached.
    """
    with repository() as repo:
        stages = repo.index.stages
        cached = [Path(out.fs_path) for stage in stages for out in stage.outs if out.use_cache]
        inputs = {
            stage.addressing: [
                os.path.relpath(dep.fs_path)
                for dep in stage.deps
                if any(_overlap(Path(dep.fs_path), out) for out in cached)
            ]
            for stage in stages
            if stage.addressing in names
            and "@" in stage.name
            and all(out.use_cache for out in stage.outs)
        }
        # DVC keeps files in files/md5 of its cache, and the run-cache in runs.
        return Cells(inputs, str(Path(repo.cache.local.path).parents[1]))


def _index(repo: Repo, file: Path) -> Index:
    """Return the stages of a dvc.yaml and of those in the folders above it, whose outs it may need.

    DVC's own index has every pipeline's: seconds for hundreds of runs that have no say here.
    """
    folders = [folder for folder in file.absolute().parents if folder.is_relative_to(repo.root_dir)]
    files = [*(folder / "dvc.yaml" for folder in reversed(folders)), file.absolute()]
    there = [str(path) for path in dict.fromkeys(files) if path.is_file()]
    return Index.from_indexes(repo, (Index.from_file(repo, path) for path in there))


def _overlap(a: Path, b: Path) -> bool:
    return a.is_relative_to(b) or b.is_relative_to(a)


def _file(stage: Stage) -> Path:
    return Path(os.path.relpath(stage.path))


def _select(stages: list[Stage], file: Path, targets: Sequence[str]) -> list[Stage]:
    """Return the stages that the targets name; UserError for one that names none."""
    if not stages:
        raise UserError(f"{file}: no stages; name a pipeline such as --pipeline dvc.yaml")
    chosen = []
    for target in targets:
        found = [s for s in stages if target in (s.name, _group(s)) or fnmatchcase(s.name, target)]
        if not found:
            groups = ", ".join(dict.fromkeys(_group(stage) for stage in stages))
            raise UserError(f"{target}: no such stage in {file}; it has {groups}")
        chosen += found
    return list(dict.fromkeys(chosen)) if targets else stages


def _group(stage: Stage) -> str:
    return stage.name.partition("@")[0]


def order_lock(file: Path) -> None:
    """Put the entries of the dvc.lock beside `file` into its order; drop those of lost stages.

    That is the order in which a sequential `dvc repro` of this file alone writes a new dvc.lock,
    provided that dvc.yaml names each stage after those it needs. (With more than twice as many
    stages in other files, DVC walks a set, in another order at each call.)
    """
    lock = file.with_suffix(".lock")
    with repository() as repo:
        if not lock.exists():
            return
        entries = one_stage.entries(lock.read_text(encoding="utf-8"))
        live = load_file(repo, str(file.absolute())).resolver.get_keys()
        order = [name for name in live if name in entries]
        if order and list(entries) != order:
            write_text(lock, one_stage.HEAD + "".join(entries[name] for name in order))
