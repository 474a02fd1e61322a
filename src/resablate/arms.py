"""What is said of an arm, all seeds of one implementation and configuration at one scale."""

import json
from dataclasses import dataclass
from typing import Any

from resablate.results import NOT_RUN, Result
from resablate.stats import Estimate, estimate, mean_of_shared, paired_difference, ratio

Floor = dict[str, Any]  # "floor": nats per token, "ngram_ladder": {"1": nats, ...}


@dataclass(frozen=True)
class Arm:
    """The planned runs of one arm. Diverged and missing runs are counted, and are in no mean."""

    scale: str
    impl: str
    config: str
    planned: list[Result]

    @property
    def finished(self) -> list[Result]:
        return [run for run in self.planned if run.status == "finished"]

    @property
    def diverged(self) -> list[Result]:
        return [run for run in self.planned if run.status == "diverged"]

    @property
    def missing(self) -> list[Result]:
        return [run for run in self.planned if run.status == NOT_RUN]

    def by_seed(self, name: str) -> dict[int, float]:
        """Return a measure of the finished runs, by seed; null ones are left out."""
        return {r.key.seed: value for r in self.finished if (value := r[name]) is not None}

    def estimate(self, name: str) -> Estimate:
        return estimate(list(self.by_seed(name).values()))


@dataclass(frozen=True)
class Gap:
    """Arm a against arm b in best_val_loss, over the seeds that finished in both."""

    difference: Estimate  # a - b, nats per token, paired by seed
    ratio: float | None  # mean a / mean b
    percent: Estimate  # the difference in percent of mean b, which counts as known


def compare(a: Arm | None, b: Arm | None) -> Gap:
    """Return the gap between two arms; of an arm that is not in the grid, an empty one."""
    of_a = a.by_seed("best_val_loss") if a else {}
    of_b = b.by_seed("best_val_loss") if b else {}
    base = mean_of_shared(of_b, of_a)
    difference = paired_difference(of_a, of_b)
    percent = difference.scaled(ratio(100.0, base))
    return Gap(difference, ratio(mean_of_shared(of_a, of_b), base), percent)


class Arms:
    """All arms of a grid, in its order."""

    def __init__(self, results: list[Result]):
        planned: dict[tuple[str, str, str], list[Result]] = {}
        for result in results:
            planned.setdefault(result.key[:3], []).append(result)
        self.all = [Arm(*names, runs) for names, runs in planned.items()]

    def get(self, scale: str, impl: str, config: str) -> Arm | None:
        """Return an arm, or None where the grid does not have it."""
        matches = (arm for arm in self.of(scale, impl) if arm.config == config)
        return next(matches, None)

    def of(self, scale: str, impl: str) -> list[Arm]:
        return [arm for arm in self.all if (arm.scale, arm.impl) == (scale, impl)]

    def groups(self) -> list[tuple[str, str]]:
        """Return the pairs of scale and implementation."""
        return list(dict.fromkeys((arm.scale, arm.impl) for arm in self.all))


def summary_text(arms: Arms, floors: dict[str, Floor]) -> str:
    """Return, as JSON, scale -> implementation -> configuration -> numbers, each scale's floor."""
    summary: dict[str, Any] = {scale: dict(floor) for scale, floor in floors.items()}
    for arm in arms.all:
        of_impl = summary[arm.scale].setdefault(arm.impl, {})
        of_impl[arm.config] = _summary(arm, compare(arm, arms.get(arm.scale, arm.impl, "full")))
    return json.dumps(summary, indent=1, allow_nan=False) + "\n"


def _summary(arm: Arm, to_full: Gap) -> dict[str, float | int | None]:
    best = arm.estimate("best_val_loss")
    return {
        "best_val_loss": best.mean,
        "std": best.std,
        "lo": best.lo,
        "hi": best.hi,
        "final_val_loss": arm.estimate("final_val_loss").mean,
        "full_val_loss": arm.estimate("full_val_loss").mean,
        "bits_per_byte": arm.estimate("bits_per_byte").mean,
        "hidden_norm_growth": arm.estimate("hidden_norm_growth").mean,
        "gap_to_full": to_full.difference.mean,
        "ratio_to_full": to_full.ratio,
        "n_planned": len(arm.planned),
        "n_finished": len(arm.finished),
        "n_diverged": len(arm.diverged),
    }
