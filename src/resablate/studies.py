"""studies/params.yaml: each study's arms as named differences from a base run.

A study has ordered axes. An arm takes one level of each, and is named after them: levels joined
with "-". What a level changes stands once under `differences`; a level of the axes `impl` and
`config` is one of the root params.yaml.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from resablate.errors import UserError
from resablate.params import Layer, Params, Run, Seed
from resablate.strict import Strict, read

FILE = Path("studies/params.yaml")
ROOT_AXES = ("impl", "config")  # levels of these stand in the root params.yaml


@dataclass(frozen=True)
class Arm:
    """One arm: its name, the level that it takes on each axis, and what it changes in all."""

    name: str
    levels: dict[str, str]
    changes: dict[str, object]


class Study(Strict):
    """One study; `changes` hold for all its arms."""

    scale: str
    impl: str
    config: str
    changes: Layer = Layer()
    axes: dict[str, list[str]] = Field(min_length=1)
    seed: list[Seed] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for axis, values in {**self.axes, "seed": self.seed}.items():
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{axis}: {values} must hold at least one value, none twice")
        return self

    def cell(self, levels: Mapping[str, str]) -> tuple[str, str, str]:
        """Return the scale, implementation and configuration of an arm."""
        return self.scale, levels.get("impl", self.impl), levels.get("config", self.config)


class Studies(Strict):
    """studies/params.yaml as a whole."""

    studies: dict[str, Study] = Field(min_length=1)
    differences: dict[str, Layer]

    def study(self, name: str) -> Study:
        """Return a study; UserError names what there is."""
        if name not in self.studies:
            known = ", ".join(self.studies)
            raise UserError(f"{FILE}: studies has no {name!r}; it has {known}")
        return self.studies[name]

    def arms(self, name: str) -> list[Arm]:
        """Return the arms of a study, its last axis fastest."""
        axes = self.study(name).axes
        return [
            self._arm(name, dict(zip(axes, levels, strict=True)))
            for levels in product(*axes.values())
        ]

    def arm(self, name: str, levels: list[str]) -> Arm:
        """Return the arm that takes these levels, in the order of the study's axes."""
        axes = self.study(name).axes
        taken = dict(zip(axes, levels, strict=False))
        if len(levels) != len(axes) or any(taken[axis] not in axes[axis] for axis in axes):
            wanted = "; ".join(f"{axis} of {', '.join(of)}" for axis, of in axes.items())
            raise UserError(f"{name} has no arm {' '.join(levels) or 'without levels'}: {wanted}")
        return self._arm(name, taken)

    def _arm(self, name: str, levels: dict[str, str]) -> Arm:
        changes = self.study(name).changes.model_dump(exclude_none=True)
        for level in self._own(levels):
            changes |= self._difference(level).model_dump(exclude_none=True)
        return Arm("-".join(levels.values()), levels, changes)

    def _own(self, levels: Mapping[str, str]) -> list[str]:
        return [level for axis, level in levels.items() if axis not in ROOT_AXES]

    def _difference(self, level: str) -> Layer:
        if level not in self.differences:
            raise UserError(f"{FILE}: differences: lacks {level!r}, which is a level of an axis")
        return self.differences[level]

    def resolve(self, root: Params, name: str, arm: Arm) -> Run:
        """Return the run of an arm; UserError names the key that makes it impossible."""
        study = self.study(name)
        layers = {f"{FILE}: studies.{name}.changes": study.changes}
        for level in self._own(arm.levels):
            layers[f"{FILE}: differences.{level}"] = self._difference(level)
        return root.resolve(*study.cell(arm.levels), changes=layers)


def load(path: Path = FILE) -> Studies:
    """Read studies/params.yaml; UserError names the first key that is wrong."""
    return read(path, Studies)


def check(studies: Studies, root: Params) -> None:
    """Resolve every arm of every study; UserError names what is impossible."""
    for name in studies.studies:
        for arm in studies.arms(name):
            studies.resolve(root, name, arm)
