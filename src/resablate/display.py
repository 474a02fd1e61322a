"""How a sweep shows where it stands: stage times, time left, one status line.

Each training process rewrites the file that RESABLATE_PROGRESS names about once a second, whole,
with one JSON line {"step": 40, "steps": 600, "loss": 3.1, "tokens_per_s": 5200.0}.
"""

import json
import math
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TextIO

from resablate import paths
from resablate.files import write_text
from resablate.paper import PaperKey

LIVE_S = 0.5  # between status lines on a terminal
PLAIN_S = 30.0  # and elsewhere


class Progress(NamedTuple):
    """How far a training run has come."""

    step: int
    steps: int
    loss: float | None


class Work(NamedTuple):
    """A running stage: its address, the seconds that it has run, how far it has come."""

    name: str
    seconds: float
    progress: Progress | None
    rest: float | None  # seconds that it will still take, by its progress


def read_json(path: Path) -> dict:
    """Return a JSON file's object; an empty one if it is missing, damaged or something else."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def read_progress(path: Path) -> Progress | None:
    """Return what a progress file says, or None if it says nothing usable."""
    content = read_json(path)
    step, steps, loss = (content.get(key) for key in ("step", "steps", "loss"))
    if type(step) is not int or type(steps) is not int or not 0 <= step <= steps or steps == 0:
        return None
    usable = isinstance(loss, float | int) and math.isfinite(loss)
    return Progress(step, steps, float(loss) if usable else None)


def progress_of(log: Path) -> Path:
    """Return where the stage of a log writes how far it has come."""
    return log.with_suffix(".progress.json")


class Watch:
    """Looks at a running stage: how long it has run, how far it has come, how fast it goes on."""

    def __init__(self, name: str, log: Path) -> None:
        """`log`: of the stage, beside which its progress lies."""
        self.name, self.file = name, progress_of(log)
        self._began = time.monotonic()
        self._first: tuple[float, int] | None = None  # when a step was first seen, and which

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began

    def look(self) -> Work:
        """Return where the stage stands.

        Its pace is of the steps since the first look: a resumed run has not made those before.
        """
        now, progress = time.monotonic(), read_progress(self.file)
        if progress is None:
            return Work(self.name, self.seconds, None, None)
        then, step = self._first = self._first or (now, progress.step)
        done = progress.step - step
        rest = (progress.steps - progress.step) * (now - then) / done if done > 0 else None
        return Work(self.name, self.seconds, progress, rest)


def recorded_seconds() -> dict[str, object]:
    """Return the seconds of each run of which an environment's record is here, by stage."""
    found = {}
    for path in (paths.ENVIRONMENTS / "runs").rglob("*.json"):
        line, names = read_json(path), path.relative_to(paths.ENVIRONMENTS / "runs").parts
        if len(names) == 4 and line.get("from_step") == 0:
            found[_stage(*names[:3], path.stem)] = line.get("seconds")
    return found


def _stage(pipeline: str, scale: str, arm: str, seed: str) -> str:
    """Return the stage that made a run, from the parts of its path."""
    if pipeline == "main":
        return f"train@{scale}-{arm}-{seed}"
    if pipeline == "paper":
        impl, _, config = arm.partition("-")
        return PaperKey(scale, impl, config, seed).stage
    file = "paper/dvc.yaml" if scale.startswith("gpt") else "studies/dvc.yaml"
    return f"{file}:{pipeline}@{arm}-{seed}"


class Times:
    """Seconds that each stage took when its command last ran, kept between sweeps."""

    def __init__(self, path: Path, recorded: Mapping[str, object] | None = None) -> None:
        """Read the times; `recorded` ones, as of another machine, hold where there are none yet."""
        self._path = path
        self._seconds = {
            name: float(seconds)
            for name, seconds in ((recorded or {}) | read_json(path)).items()
            if isinstance(seconds, float | int) and 0 <= seconds < math.inf
        }

    def record(self, name: str, seconds: float) -> None:
        """Remember a finished stage."""
        self._seconds[name] = round(seconds, 1)
        write_text(self._path, json.dumps(self._seconds, indent=1, sort_keys=True) + "\n")

    def expected(self, name: str, running: Iterable[Work] = ()) -> float | None:
        """Return a stage's own time, else the mean of its group's, else None."""
        if name in self._seconds:
            return self._seconds[name]
        alike = [s for other, s in self._seconds.items() if _group(other) == _group(name)]
        alike = alike or [
            work.seconds + work.rest
            for work in running
            if _group(work.name) == _group(name) and work.rest is not None
        ]
        return sum(alike) / len(alike) if alike else None

    def left(self, waiting: Iterable[str], running: Iterable[Work], jobs: int) -> float | None:
        """Return roughly how many seconds are left; None while most stages' times are unknown."""
        running, waiting = list(running), list(waiting)
        rest = [rest for work in running if (rest := self._rest(work)) is not None]
        later = [t for name in waiting if (t := self.expected(name, running)) is not None]
        if 2 * len(rest + later) <= len(running) + len(waiting):
            return None
        return max([sum(rest + later) / jobs, *rest])

    def _rest(self, work: Work) -> float | None:
        """Return what a running stage will still take, by its progress or by earlier times."""
        total = self.expected(work.name)
        if work.rest is None and total is not None:
            return max(0.0, total - work.seconds)
        return work.rest


def _group(name: str) -> str:
    return name.partition("@")[0]


def clock(seconds: float) -> str:
    """Return a duration as 0:07, 12:34 or 1:02:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def describe(work: Work) -> str:
    """Return a running stage as `train@full-42 240/600 loss 2.310`."""
    if work.progress is None:
        return work.name
    loss = "" if work.progress.loss is None else f" loss {work.progress.loss:.3f}"
    return f"{work.name} {work.progress.step}/{work.progress.steps}{loss}"


class Display:
    """Lines of events; below them, on a terminal, one status line that is rewritten in place."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._began = self._shown = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def line(self, text: str) -> None:
        """Print a line that stays."""
        print(self._clear() + text, file=self._stream, flush=True)

    def event(self, text: str) -> None:
        """Print a line that stays, with the time since the start before it."""
        self.line(f"[{clock(self.elapsed):>7}] {text}")

    def due(self) -> bool:
        """Return whether it is time for a status line."""
        return time.monotonic() - self._shown >= (LIVE_S if self._live else PLAIN_S)

    def status(self, text: str) -> None:
        """Show a status line: in place of the last one on a terminal, as an event elsewhere."""
        self._shown = time.monotonic()
        if not self._live:
            self.event(text)
            return
        width = shutil.get_terminal_size().columns - 1
        text = f"[{clock(self.elapsed):>7}] {text}"
        self._stream.write(
            self._clear() + (text if len(text) <= width else text[: width - 1] + "…")
        )
        self._stream.flush()

    def _clear(self) -> str:
        return "\r\x1b[K" if self._live else ""


def expectations(path: Path) -> list[str]:
    """Return a summary's mean best validation losses as lines; none where it has none.

    The summary maps scale -> implementation -> configuration -> best_val_loss (nats per token)
    and scale -> floor, the loss of a model that knows only how frequent each token is.
    """
    lines = []
    for scale, entry in read_json(path).items():
        if not isinstance(entry, dict):
            continue
        impls = {name: arms for name, arms in entry.items() if _losses(arms)}
        configs = list(dict.fromkeys(config for arms in impls.values() for config in _losses(arms)))
        if not impls:
            continue
        floor = entry.get("floor")
        beside = f"; unigram floor {floor:.4f}" if isinstance(floor, float) else ""
        lines += ["", f"mean best validation loss at {scale}, nats per token{beside}"]
        lines.append("".join((f"{'':16}", *(f"{config:>11}" for config in configs))))
        for name, arms in impls.items():
            losses = _losses(arms)
            cells = (f"{losses[c]:11.4f}" if c in losses else f"{'—':>11}" for c in configs)
            lines.append("".join((f"  {name:14}", *cells)))
    return lines


def _losses(arms: object) -> dict[str, float]:
    """Return configuration -> mean best validation loss, of those that have one."""
    if not isinstance(arms, dict):
        return {}
    found = {name: arm.get("best_val_loss") for name, arm in arms.items() if isinstance(arm, dict)}
    return {name: loss for name, loss in found.items() if isinstance(loss, float)}
