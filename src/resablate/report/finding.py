"""What the runs say, as sentences that are true of them by construction."""

from collections.abc import Mapping
from typing import Any

from resablate import labels
from resablate.arms import Arm, Arms
from resablate.claims import CLAIMS

WORDS = {
    "learn": "fall below it with every seed",
    "stay": "stay at it with every seed",
    "mixed": "differ from seed to seed",
    "none": "have no finished run",
}


def kind(arm: Arm, floor: float) -> str:
    """Return whether all seeds of an arm learn, all stay at the floor, or neither."""
    by_config = {arm.config: arm}
    if CLAIMS["below_floor"].holds(by_config, floor, arm.config):
        return "learn"
    if CLAIMS["at_floor"].holds(by_config, floor, arm.config):
        return "stay"
    return "mixed" if arm.finished else "none"


def sentences(arms: Arms, summary: Mapping[str, Any]) -> list[str]:
    """Return a sentence per scale and implementation, and one on where the two differ."""
    found: list[str] = []
    for scale in dict.fromkeys(arm.scale for arm in arms.all):
        floor = summary[scale]["floor"]
        kinds: dict[str, dict[str, str]] = {}
        found.append(
            f"At scale {labels.scale(scale)}, a model that knows only how frequent each token is"
            f" would reach {floor:.4f} nats per token: the floor."
        )
        for impl in dict.fromkeys(arm.impl for arm in arms.all if arm.scale == scale):
            own = arms.of(scale, impl)
            kinds[impl] = {arm.config: kind(arm, floor) for arm in own}
            found.append(f"{labels.impl(impl)}: {_groups(own, kinds[impl])}.")
        found += _contrast(kinds)
    return found


def _groups(arms: list[Arm], kinds: Mapping[str, str]) -> str:
    parts = []
    for name, words in WORDS.items():
        members = [_named(arm) for arm in arms if kinds[arm.config] == name]
        if members:
            parts.append(f"{_and(members)} {words}")
    return "; ".join(parts)


def _named(arm: Arm) -> str:
    best = arm.estimate("best_val_loss")
    number = (
        ""
        if best.mean is None
        else f" ({best.mean:.4f}, n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{best.n})"
    )
    return f"{labels.config(arm.config)}{number}"


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _contrast(kinds: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Name the configurations that do otherwise in one implementation than in another."""
    if len(kinds) < 2:
        return []
    shared = set.intersection(*(set(of) for of in kinds.values()))
    apart = [
        labels.config(config)
        for config in next(iter(kinds.values()))
        if config in shared and len({of[config] for of in kinds.values()}) > 1
    ]
    if not apart:
        return ["The implementations agree on which configurations learn."]
    verb = "ends" if len(apart) == 1 else "end"
    return [f"{_and(apart)} alone {verb} differently from one implementation to the other."]
