"""Gains on the sublayers' outputs, at run time or at start, and how far apart they end."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from resablate.params import Run
from resablate.studyruns import StudyArm, mean_column

KINDS = {"runtime": "runtime gain", "start": "gain at start"}
ABSORBED = 0.002  # nats: the spread over gains that the paper calls absorbed
BY = 200  # steps: when the paper has it absorbed


def value(run: Run) -> float:
    """Return a run's gain, whichever kind it is."""
    return run.gain * run.init_gain


def is_kind(run: Run, kind: str) -> bool:
    """Return whether a run has this kind of gain, or none."""
    other = run.init_gain if kind == "runtime" else run.gain
    return other == 1.0


@dataclass(frozen=True)
class Ladder:
    """Arms that differ in one kind of gain only, from the smallest gain to the largest."""

    kind: str
    arms: Sequence[StudyArm]

    @property
    def label(self) -> str:
        return KINDS[self.kind]

    @cached_property
    def curves(self) -> list[tuple[list[float], list[float]]]:
        """Steps and mean validation losses of each arm."""
        return [mean_column(arm, "val_loss") for arm in self.arms]

    @cached_property
    def spread(self) -> tuple[list[float], list[float]]:
        """Steps, and the largest minus the smallest mean loss over the gains at each."""
        if not all(steps for steps, _ in self.curves):
            return [], []
        columns = zip(*(losses for _, losses in self.curves), strict=True)
        return self.curves[0][0], [max(column) - min(column) for column in columns]

    @property
    def end(self) -> float | None:
        """The spread at the last evaluation; None where an arm finished no run."""
        return self.spread[1][-1] if self.spread[1] else None

    def at(self, step: int) -> float | None:
        """Return the spread at the first evaluation from `step` on."""
        return next((s for t, s in zip(*self.spread, strict=True) if t >= step), None)

    @property
    def absorbed_at(self) -> int | None:
        """The first step from which on the spread stays below ABSORBED; None if it never does."""
        steps, spread = self.spread
        first = None
        for step, gap in zip(steps, spread, strict=True):
            if gap >= ABSORBED:
                first = None
            elif first is None:
                first = int(step)
        return first

    @cached_property
    def noise(self) -> float | None:
        """Root mean square over gains of the seeds' sample deviation of the final loss."""
        stds = [arm.estimate("final_val_loss").std for arm in self.arms]
        known = [std for std in stds if std is not None]
        return math.sqrt(sum(std**2 for std in known) / len(known)) if known else None

    @cached_property
    def best(self) -> StudyArm | None:
        """The arm with the lowest mean best loss."""
        known = [arm for arm in self.arms if arm.estimate("best_val_loss").mean is not None]
        return min(known, key=lambda arm: arm.estimate("best_val_loss").mean, default=None)


def ladders(arms: Sequence[StudyArm]) -> dict[str, Ladder]:
    """Return the arms with each kind of gain that there is, the one without any in both."""
    made = {}
    for kind in KINDS:
        of = sorted((arm for arm in arms if is_kind(arm.run, kind)), key=lambda a: value(a.run))
        if len(of) > 1:
            made[kind] = Ladder(kind, of)
    return made
