"""The runs of a study: found from studies/params.yaml, read, and grouped by arm.

A study that compares with the root pipeline's runs reads those too: its own arms then need no copy
of the base.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from resablate import params, paths, results, studies
from resablate.arms import Arm, Floor
from resablate.results import Curve, RunKey

MAIN = "main"
GRID = "studies/params.yaml's {study}"


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
            run.key.seed: results.read_curve(
                run.key.paths(self.study).curve, f"run `dvc repro -f -s {run.key.stage}`"
            )
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


def load(name: str) -> StudyRuns:
    """Read a study's runs; UserError names the missing ones, and those that it does not declare."""
    declared, root = studies.load(), params.load()
    study = declared.study(name)
    data = results.read_floor(root.scales[study.scale].dataset)
    planned = {
        arm.name: [_key(name, study, arm, seed) for seed in study.seed]
        for arm in declared.arms(name)
    }
    keys = [key for of_arm in planned.values() for key in of_arm]
    grid = GRID.format(study=name)
    results.refuse_missing(name, keys, grid)
    results.refuse_extra(name, keys, grid)
    arms = []
    for arm in declared.arms(name):
        runs = [results.read(name, key, data["floor"]) for key in planned[arm.name]]
        run = declared.resolve(root, name, arm)
        _, impl, config = study.cell(arm.levels)
        arms.append(StudyArm(study.scale, impl, config, runs, name, arm.name, arm.levels, run))
    return StudyRuns(name, study.scale, study.axes, study.seed, arms, data)


def _key(name: str, study: studies.Study, arm: studies.Arm, seed: int) -> StudyKey:
    return StudyKey(name, *study.cell(arm.levels), arm.name, seed, arm.levels)


def main_arms(scale: str, impl: str, configs: Iterable[str], **levels: str) -> list[StudyArm]:
    """Read arms of the root pipeline; `levels` are theirs on the axes of the study that asks."""
    root = params.load()
    floor = results.read_floor(root.scales[scale].dataset)["floor"]
    arms = []
    for config in configs:
        keys = [RunKey(scale, impl, config, seed) for seed in root.grid.seed]
        results.refuse_missing(MAIN, keys)
        runs = [results.read(MAIN, key, floor) for key in keys]
        of = {"impl": impl, "config": config, **levels}
        run = root.resolve(scale, impl, config)
        arms.append(StudyArm(scale, impl, config, runs, MAIN, keys[0].arm, of, run))
    return arms


def mean_column(arm: StudyArm, name: str) -> tuple[list[float], list[float]]:
    """Return the steps and the mean over finished runs of a curve's column; empty if unmeasured."""
    curves = arm.finished_curves
    if not curves or not all(name in curve for curve in curves):
        return [], []
    columns = zip(*(curve[name] for curve in curves), strict=True)
    return curves[0]["step"], [math.fsum(column) / len(column) for column in columns]
