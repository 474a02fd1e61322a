"""Curves of runs as SVG that the page's script can read: a panel an implementation.

Every polyline carries what it shows (run, seed, steps, values), so that the page names the run
under the pointer. Everything is laid out here, in whole units, so that equal runs give equal bytes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from resablate import labels
from resablate.results import Curve, Result

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 18, 26, 38
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MARGIN = 0.25  # nats of room around the losses


class Line(NamedTuple):
    """One run: where its points stand, and what they are."""

    config: str
    series: int  # of the configuration, for colour and dashes
    label: str
    stage: str
    points: str
    steps: str
    values: str


class Tick(NamedTuple):
    """A mark on an axis."""

    at: float
    text: str


class Panel(NamedTuple):
    """A coordinate system with its lines."""

    title: str
    lines: list[Line]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    references: list[Tick]


class Chart(NamedTuple):
    """Panels side by side, that share axes and a legend."""

    name: str
    title: str
    unit: str
    panels: list[Panel]
    legend: list[tuple[int, str]]


class Axis:
    """From values to the vertical position; zeros of a log axis stand at a marked place."""

    def __init__(self, values: Sequence[float], *, log: bool) -> None:
        known = [value for value in values if math.isfinite(value)]
        self.log = log
        if log:
            logs = [math.log10(value) for value in known if value > 0] or [0.0]
            self.low, self.high = math.floor(min(logs)) - 1.0, math.ceil(max(logs)) + 0.0
        else:
            self.low, self.high = min(known, default=0) - MARGIN, max(known, default=1) + MARGIN

    def __call__(self, value: float) -> float:
        """Return the position in the panel, downwards."""
        if self.log:
            value = math.log10(value) if value > 0 else self.low
        share = (value - self.low) / (self.high - self.low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 2)

    def ticks(self) -> list[Tick]:
        if self.log:
            step = max(1, math.ceil((self.high - self.low) / 7))
            powers = range(int(self.high), int(self.low), -step)
            return [Tick(self(10.0**k), f"10{str(k).translate(RAISED)}") for k in powers] + [
                Tick(self(0.0), "0")
            ]
        step = 0.5 if self.high - self.low < 5 else 1.0
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [Tick(self(k * step), f"{k * step:.1f}") for k in range(first, last + 1)]


def chart(
    name: str,
    title: str,
    column: str,
    unit: str,
    runs: Sequence[Result],
    curves: Mapping[str, Curve],
    references: Mapping[str, float] | None = None,
    *,
    log: bool = False,
) -> Chart:
    """Draw a column of every run's curve; `curves` by stage, `references` are level lines."""
    levels = references or {}
    drawn = [run for run in runs if run.key.stage in curves and column in curves[run.key.stage]]
    values = [y for run in drawn for y in curves[run.key.stage][column]]
    axis = Axis([*values, *levels.values()], log=log)
    last = max((max(curves[run.key.stage]["step"]) for run in drawn), default=1.0) or 1.0
    configs = list(dict.fromkeys([*labels.CONFIGS, *(run.key.config for run in drawn)]))
    panels = []
    for impl in dict.fromkeys(run.key.impl for run in drawn):
        own = [run for run in drawn if run.key.impl == impl]
        lines = [_line(run, curves[run.key.stage], column, axis, last, configs) for run in own]
        marks = [Tick(axis(level), text) for text, level in levels.items()]
        panels.append(Panel(labels.impl(impl), lines, _x_ticks(last), axis.ticks(), marks))
    shown = {run.key.config for run in drawn}
    legend = [(i, labels.config(config)) for i, config in enumerate(configs) if config in shown]
    return Chart(name, title, unit, panels, legend)


def _x(step: float, last: float) -> float:
    return round(LEFT + step / last * (WIDTH - LEFT - RIGHT), 2)


def _x_ticks(last: float) -> list[Tick]:
    return [Tick(_x(last * k / 4, last), f"{last * k / 4:,.0f}") for k in range(5)]


def _line(
    run: Result, curve: Curve, column: str, axis: Axis, last: float, configs: Sequence[str]
) -> Line:
    kept = [
        (step, value)
        for step, value in zip(curve["step"], curve[column], strict=True)
        if math.isfinite(value)
    ]
    key = run.key
    ended = "" if run.status == "finished" else f", {run.status}"
    return Line(
        config=key.config,
        series=configs.index(key.config) % 8,
        label=f"{labels.impl(key.impl)}, {labels.config(key.config)}, seed {key.seed}{ended}",
        stage=key.stage,
        points=" ".join(f"{_x(step, last):g},{axis(value):g}" for step, value in kept),
        steps=" ".join(f"{step:g}" for step, _ in kept),
        values=" ".join(f"{value:.5g}" for _, value in kept),
    )
