"""The runs of a study: found from studies/params.yaml, read, and grouped by arm.

A study that compares with the root pipeline's runs reads those too: its own arms then need no copy
of the base.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from resablate import declared, params, paths, results, studies
from resablate.arms import Arm, Floor
from resablate.errors import UserError
from resablate.results import AbsentError, Curve, Result, RunKey

MAIN = "main"
GRID = "studies/params.yaml's {study}"
DECLARED = (paths.PARAMS, studies.FILE)


@dataclass(frozen=True)
class StudyKey:
    """A cell of a study's grid: one seed of one arm."""

    study: str
    scale: str
    impl: str
    config: str
    arm: str
    seed: int
    levels: Mapping[str, str]  # axis -> level

    @property
    def stage(self) -> str:
        """The stage that makes the run, as `dvc repro` takes it."""
        return f"studies/dvc.yaml:{self.study}@{self.arm}-{self.seed}"

    @property
    def columns(self) -> dict[str, str | int]:
        """What names the run in a table of runs."""
        cell = {"stage": self.stage, "scale": self.scale, "impl": self.impl, "config": self.config}
        own = {axis: level for axis, level in self.levels.items() if axis not in cell}
        return {**cell, "arm": self.arm, **own, "seed": self.seed}

    def paths(self, pipeline: str) -> paths.RunPaths:
        return paths.run(pipeline, self.scale, self.arm, self.seed)


def _curve(path: Path, stage: str) -> Curve:
    """Return a run's curve, read once as long as its file is the same."""
    try:
        state = path.stat()
    except OSError:
        raise AbsentError(f"{path}: not here; run `dvc checkout`, or `dvc repro {stage}`") from None
    return _read_curve(path.absolute(), state.st_mtime_ns, state.st_size, stage)


@lru_cache(maxsize=512)
def _read_curve(path: Path, modified: int, size: int, stage: str) -> Curve:
    return results.read_curve(path, f"run `dvc repro -f -s {stage}`")


@dataclass(frozen=True)
class StudyArm(Arm):
    """An arm of a study, or of the root pipeline, with the parameters that its runs share."""

    study: str
    name: str
    levels: Mapping[str, str]
    run: params.Run  # resolved, under the arm's changes

    @property
    def n_params(self) -> int:
        return self.planned[0]["n_params"]

    @property
    def tokens(self) -> int:
        """Training tokens of one run that finishes."""
        return self.run.steps * self.run.tokens_per_step

    @cached_property
    def curves(self) -> dict[int, Curve]:
        """The training curve of each run, by seed."""
        return {
            run.key.seed: _curve(run.key.paths(self.study).curve, run.key.stage)
            for run in self.planned
        }

    @property
    def finished_curves(self) -> list[Curve]:
        return [self.curves[run.key.seed] for run in self.finished]


@dataclass(frozen=True)
class StudyRuns:
    """A study's arms in its grid's order, and what their losses are measured against."""

    name: str
    scale: str
    axes: Mapping[str, Sequence[str]]
    seeds: Sequence[int]
    arms: Sequence[StudyArm]
    data: Floor  # of the scale's data set: floor and ngram_ladder

    @property
    def floor(self) -> float:
        return self.data["floor"]

    @cached_property
    def _by_levels(self) -> dict[frozenset[tuple[str, str]], StudyArm]:
        return {frozenset(arm.levels.items()): arm for arm in self.arms}

    def arm(self, **levels: str) -> StudyArm:
        """Return the arm with exactly these levels."""
        return self._by_levels[frozenset(levels.items())]

    def select(self, **levels: str) -> list[StudyArm]:
        """Return the arms that have these levels, whatever their others."""
        return [arm for arm in self.arms if levels.items() <= arm.levels.items()]

    def levels(self, axis: str) -> list[str]:
        return list(self.axes[axis])


def _key(name: str, study: studies.Study, arm: studies.Arm, seed: int) -> StudyKey:
    return StudyKey(name, *study.cell(arm.levels), arm.name, seed, arm.levels)


class Planned(NamedTuple):
    """An arm as declared."""

    arm: studies.Arm
    run: params.Run
    keys: list[StudyKey]


@lru_cache(maxsize=2)
def _declared(root: bytes, own: bytes) -> tuple[studies.Studies, params.Params]:
    """Return all studies and the root's parameters, as long as both files hold this."""
    return studies.load(), declared.load()


@lru_cache(maxsize=32)  # by content, since tables are derived hundreds of times from other runs
def _plan(name: str, root: bytes, own: bytes) -> tuple[studies.Study, params.Params, list[Planned]]:
    """Return a study, the root's parameters and the study's arms, as long as both files are so."""
    known, resolved = _declared(root, own)
    study = known.study(name)
    arms = [
        Planned(
            arm,
            known.resolve(resolved, name, arm),
            [_key(name, study, arm, seed) for seed in study.seed],
        )
        for arm in known.arms(name)
    ]
    return study, resolved, arms


class Source:
    """Where runs come from: their files."""

    def study(self, name: str) -> StudyRuns:
        """Return a study's runs; UserError names missing ones, and those that it does not have."""
        contents = (path.read_bytes() if path.is_file() else b"" for path in DECLARED)
        study, root, planned = _plan(name, *contents)
        data = results.read_floor(root.scales[study.scale].dataset)
        runs = self._own(name, [key for arm in planned for key in arm.keys], data["floor"])
        arms = []
        for arm, run, keys in planned:
            _, impl, config = study.cell(arm.levels)
            own, runs = runs[: len(keys)], runs[len(keys) :]
            arms.append(StudyArm(study.scale, impl, config, own, name, arm.name, arm.levels, run))
        return StudyRuns(name, study.scale, study.axes, study.seed, arms, data)

    def main_arms(
        self, scale: str, impl: str, configs: Iterable[str], **levels: str
    ) -> list[StudyArm]:
        """Return arms of the root pipeline; `levels` are theirs on the axes of who asks."""
        root = declared.load()
        floor = results.read_floor(root.scales[scale].dataset)["floor"]
        arms = []
        for config in configs:
            keys = [RunKey(scale, impl, config, seed) for seed in root.grid.seed]
            runs = self._main(keys, floor)
            of = {"impl": impl, "config": config, **levels}
            run = root.resolve(scale, impl, config)
            arms.append(StudyArm(scale, impl, config, runs, MAIN, keys[0].arm, of, run))
        return arms

    def _own(self, name: str, keys: Sequence[StudyKey], floor: float) -> list[Result]:
        grid = GRID.format(study=name)
        results.refuse_missing(name, keys, grid)
        results.refuse_extra(name, keys, grid)
        return [results.read(name, key, floor) for key in keys]

    def _main(self, keys: Sequence[RunKey], floor: float) -> list[Result]:
        results.refuse_missing(MAIN, keys)
        return [results.read(MAIN, key, floor) for key in keys]


class Rows(Source):
    """Runs as rows have them: those of a study's table, in its order, then the root's, if any."""

    def __init__(self, rows: Iterable[Result]) -> None:
        self._rows = list(rows)

    def _own(self, name: str, keys: Sequence[StudyKey], floor: float) -> list[Result]:
        rows, self._rows = self._rows[: len(keys)], self._rows[len(keys) :]
        if len(rows) < len(keys):
            raise UserError(f"{len(keys) - len(rows)} rows of {name} are not in the table of runs")
        for row, key in zip(rows, keys, strict=True):
            if row.key[:4] != (key.scale, key.impl, key.config, key.seed):
                raise UserError(f"the table of runs has no row of {key.stage} where it must stand")
        return [replace(row, key=key) for row, key in zip(rows, keys, strict=True)]

    def _main(self, keys: Sequence[RunKey], floor: float) -> list[Result]:
        rows = {row.key[:4]: row for row in self._rows}
        if missing := [key.stage for key in keys if key not in rows]:
            raise UserError(f"{paths.RUNS_CSV}: has no row {missing[0]}; run `dvc repro aggregate`")
        return [rows[key] for key in keys]


def mean_column(arm: StudyArm, name: str) -> tuple[list[float], list[float]]:
    """Return the steps and the mean over finished runs of a curve's column; empty if unmeasured."""
    curves = arm.finished_curves
    if not curves or not all(name in curve for curve in curves):
        return [], []
    columns = zip(*(curve[name] for curve in curves), strict=True)
    return curves[0]["step"], [math.fsum(column) / len(column) for column in columns]
