"""Follow the runs that train now: a table of their curves, or TensorBoard event files.

A run at work keeps its curve so far in .resume/, also one of a queued experiment or of a Slurm job.
"""

import argparse
import csv
import re
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from resablate import paths
from resablate.display import read_json
from resablate.errors import UserError
from resablate.snapshot import trail_of

COLUMNS = ("step", "train_loss", "val_loss", "lr", "grad_norm_block0")
POLL_S = 1.0
EXAMPLES = """\
examples:
  python -m resablate live                   a table, rewritten as the runs go on; Ctrl-C ends it
  python -m resablate live --once            the table as it is now
  python -m resablate live --logdir runs     the curves for TensorBoard, until Ctrl-C

TensorBoard is an extra: pip install -r requirements-live.lock; then: tensorboard --logdir runs"""


class Curve(NamedTuple):
    """A run at work: the key of its state, its name, its number of updates, its curve so far."""

    key: str
    name: str
    steps: int
    rows: list[dict[str, str]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("--logdir", type=Path, metavar="FOLDER", help="write TensorBoard's files")
    parser.add_argument("--once", action="store_true", help="look once, not until Ctrl-C")


def main(arguments: argparse.Namespace) -> int:
    """Return 0 after Ctrl-C, or after one look."""
    mirror = None if arguments.logdir is None else Mirror(arguments.logdir)
    table = Table()
    with suppress(KeyboardInterrupt):
        while True:
            curves = at_work()
            if mirror:
                mirror.update(curves)
            table.show(curves)
            if arguments.once:
                break
            time.sleep(POLL_S)
    if mirror:
        mirror.close()
    return 0


def at_work() -> list[Curve]:
    """Return the runs of this working copy that have a curve and no end yet, by name."""
    found = []
    for file in sorted((paths.main_root() / ".resume").glob("*.csv")):
        document = read_json(file.with_suffix(".json"))
        if {"name", "steps"} <= document.keys() and (rows := read_curve(file)):
            found.append(Curve(file.stem, document["name"], document["steps"], rows))
    return sorted(found, key=lambda curve: curve.name)


def read_curve(file: Path) -> list[dict[str, str]]:
    """Return a curve's rows; none where the file is gone, for its run has ended."""
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            return list(csv.DictReader(lines))
    except FileNotFoundError:
        return []


def finished(curve: Curve) -> list[dict[str, str]]:
    """Return the curve that a run has left at its end, if it goes on from what was seen."""
    trail = trail_of("trial" if curve.name.startswith("trial ") else curve.name)
    path = paths.trial().curve
    if trail != paths.trial().trail:
        path = Path("plots/curves", *trail.parts[2:])
    rows = read_curve(path)
    return rows if rows[: len(curve.rows)] == curve.rows else curve.rows


class Table:
    """Prints the last row of each run: in place on a terminal, elsewhere when it has changed."""

    def __init__(self) -> None:
        self._shown: list[str] = []

    def show(self, curves: list[Curve]) -> None:
        """Print the table if it says something new."""
        lines = table(curves)
        if lines == self._shown:
            return
        if sys.stdout.isatty() and self._shown:
            print(f"\x1b[{len(self._shown)}A\x1b[J", end="")
        print("\n".join(lines), flush=True)
        self._shown = lines


def table(curves: list[Curve]) -> list[str]:
    """Return the lines of a table with a row for each run."""
    if not curves:
        return ["no run is at work here, or none has been evaluated yet"]
    width = max(len("run"), *(len(curve.name) for curve in curves))
    lines = [f"{'run':{width}} {' '.join(f'{column:>16}' for column in COLUMNS)}"]
    for curve in curves:
        last = curve.rows[-1]
        cells = [f"{last['step']}/{curve.steps}", *map(last.get, COLUMNS[1:])]
        lines.append(f"{curve.name:{width}} {' '.join(f'{_short(cell):>16}' for cell in cells)}")
    columns = shutil.get_terminal_size((1000, 24)).columns - 1
    return [line[:columns] for line in lines]


def _short(text: str | None) -> str:
    """Return a number with five digits; other text as it is."""
    try:
        return f"{float(text or ''):.5g}"
    except ValueError:
        return text or "-"


class Mirror:
    """Writes curves as TensorBoard events, a folder for each run."""

    def __init__(self, folder: Path) -> None:
        """UserError where TensorBoard's package is not installed."""
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 -- an extra
        except ImportError:
            raise UserError(
                "--logdir needs TensorBoard: pip install -r requirements-live.lock"
            ) from None
        self._writer_class, self._folder = SummaryWriter, folder
        self._writers: dict[str, Any] = {}
        self._seen: dict[str, Curve] = {}

    def update(self, curves: list[Curve]) -> None:
        """Write the rows that are new, and the last ones of the runs that have ended."""
        for curve in curves:
            self._write(curve)
        for key in self._seen.keys() - {curve.key for curve in curves}:
            curve = self._seen[key]
            self._write(curve._replace(rows=finished(curve)))
            self._writers.pop(key).close()
            del self._seen[key]

    def close(self) -> None:
        """Finish all files."""
        for writer in self._writers.values():
            writer.close()

    def _write(self, curve: Curve) -> None:
        if curve.key not in self._writers:
            # The key keeps apart what differs in more than the name, such as an edited parameter.
            name = re.sub(r"[^\w.-]+", "_", f"{curve.name}-{curve.key[:8]}")
            # From step 0 on, what an earlier follower wrote of the same run is replaced.
            self._writers[curve.key] = self._writer_class(str(self._folder / name), purge_step=0)
        known = len(self._seen[curve.key].rows) if curve.key in self._seen else 0
        for row in curve.rows[known:]:
            for column, value in row.items():
                if column != "step" and value:
                    self._writers[curve.key].add_scalar(column, float(value), int(row["step"]))
        self._writers[curve.key].flush()
        self._seen[curve.key] = curve
