"""What stages write, computed again from the runs: to compare, and to see what a number rests on.

A stage can be derived again if its module has `derive(runs, *arguments)`, a pure function that
returns every file it writes as text, and if one of these files is its table of runs, runs.csv.
"""

import csv
import importlib
import io
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from resablate import paths, results
from resablate.errors import UserError
from resablate.links import Finding, changes, leaves
from resablate.repository import Repository, Stage
from resablate.results import AbsentError, Result

STATUSES = ("left out", "diverged")  # given to a run to see which numbers change
DERIVING = (UserError, ArithmeticError, LookupError, TypeError, ValueError)  # its errors
NUDGE = 1e-3  # relative; another one for each run, so that ratios and gaps move too
Values = dict[tuple[str, str], Any]  # (file, key) -> all that it holds there


class Row(NamedTuple):
    """A row of a table of runs, and the stage that it names as the run's maker."""

    stage: str
    run: Result


class Derivation:
    """The files of a stage as a function of the runs in its table of runs."""

    def __init__(
        self,
        root: Path,
        table: str,
        derive: Callable[[Sequence[Result]], dict[Path, str]],
        borrowed: str | None = None,
    ) -> None:
        """borrowed: another table of runs that the stage reads, whose rows follow the own ones."""
        self.root, self.table, self._derive = root, table, derive
        self.tables = [name for name in (table, borrowed) if name]
        self._without: dict[tuple[str, frozenset[int]], Values] = {}

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of the table, and those that are borrowed."""
        found = []
        for table in self.tables:
            runs = results.read_runs(self.root / table)
            named = rows((self.root / table).read_text(encoding="utf-8"))
            found += [Row(*pair) for pair in zip(named, runs, strict=True)]
        return found

    @property
    def runs(self) -> list[Result]:
        return [row.run for row in self.rows]

    @cached_property
    def made(self) -> dict[str, str]:
        """Every file that the stage makes of the runs, by its path from the root."""
        return self._texts(self.runs)

    def _texts(self, runs: Sequence[Result]) -> dict[str, str]:
        with chdir(self.root):
            return {path.as_posix(): text for path, text in self._derive(runs).items()}

    def runs_behind(self, file: str, key: str) -> list[Row]:
        """Return the runs without which a number would be another, found by leaving runs out.

        By halves: a half that changes nothing is not looked at further. Where none changes it,
        having diverged may: it is a count of those that did.
        """

        def search(status: str, runs: list[int]) -> list[int]:
            if self._with(status, frozenset(runs)).get((file, key)) == whole:
                return []
            half = len(runs) // 2
            return search(status, runs[:half]) + search(status, runs[half:]) if half else runs

        whole = self._whole.get((file, key))
        every = list(range(len(self.rows)))
        found = search(STATUSES[0], every) or search(STATUSES[1], every)
        return [self.rows[i] for i in found]

    def measures_behind(self, file: str, key: str) -> list[str]:
        """Return the measures of the runs with which a number changes; none: it is a count."""
        whole = self._whole.get((file, key))
        return [name for name, values in self._nudged.items() if values.get((file, key)) != whole]

    @property
    def _whole(self) -> Values:
        return self._with(STATUSES[0], frozenset())

    def _with(self, status: str, changed: frozenset[int]) -> Values:
        """Return all numbers after some runs were given another status."""
        if (status, changed) not in self._without:
            runs = [
                replace(run, status=status) if i in changed else run
                for i, run in enumerate(self.runs)
            ]
            try:
                self._without[status, changed] = self._values(runs)
            except DERIVING:  # of too few runs nothing can be made: every number is another
                self._without[status, changed] = {}
        return self._without[status, changed]

    @cached_property
    def _nudged(self) -> dict[str, Values]:
        """All numbers after a measure of every run was changed a little, by measure.

        Whole numbers by whole ones.
        """
        found = {}
        for name in results.VALUES:
            runs = []
            for i, run in enumerate(self.runs, start=1):
                value = run.values[name]
                more = i if name in results.INTEGERS else NUDGE * i * (value or 0)
                changed = None if value is None else value + more
                runs.append(replace(run, values={**run.values, name: changed}))
            found[name] = self._values(runs)
        return found

    def _values(self, runs: Sequence[Result]) -> Values:
        """Return what the tables' cells and the JSON files' leaves would be."""
        found: Values = {}
        for file, text in self._texts(runs).items():
            if file.endswith(".csv") and file != self.table:
                found |= {(file, key): row for key, row in rows(text).items()}
            elif file.endswith(".json"):
                found |= {(file, key): value for key, value in leaves(json.loads(text))}
        return found


class Derivations:
    """How each stage's files come from the runs, as far as its module says."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.damaged: list[Finding] = []  # tables of runs from which nothing can be derived
        self._known: dict[str, Derivation | None] = {}

    def of(self, stage: Stage) -> Derivation | None:
        """Return a stage's derivation; None if it has none, or what it needs is not here."""
        if stage.address not in self._known:
            self._known[stage.address] = self._make(stage)
        return self._known[stage.address]

    def _make(self, stage: Stage) -> Derivation | None:
        table = table_of(stage)
        if table is None or stage.module is None:
            return None
        if stage.locked is None and not (self.repository.root / table).is_file():
            return None  # it never ran
        name, arguments = stage.module
        derive = getattr(importlib.import_module(name), "derive", None)
        if derive is None:
            return None
        root = self.repository.root
        made = Derivation(root, table, lambda runs: derive(runs, *arguments), borrowed(stage))
        try:
            return made if made.made else None
        except AbsentError:  # the numbers need more of the runs than their rows
            return None
        except DERIVING as error:
            what = f"gives no tables: {type(error).__name__}: {error}"
            self.damaged.append(Finding("edited", table, what, stage.address))
            return None

    @cached_property
    def rows(self) -> dict[str, list[Result]]:
        """The rows of all tables of runs, by the address of the stage that made the run."""
        found: dict[str, list[Result]] = {}
        for stage in self.repository.stages.values():
            made = self.of(stage)
            for row in made.rows if made else ():
                if trained := trained_by(self.repository, stage, row.stage):
                    found.setdefault(trained.address, []).append(row.run)
        return found


def table_of(stage: Stage) -> str | None:
    """Return the table of runs that a stage writes, if it does."""
    return next((out for out in stage.outs if Path(out).name.endswith("runs.csv")), None)


def borrowed(stage: Stage) -> str | None:
    """Return the root's table of runs for another stage that reads the root's runs."""
    of_main, table = paths.runs("main").as_posix(), paths.RUNS_CSV.as_posix()
    reads = any(dep.startswith(of_main) for dep in (stage.declared or stage.locked).deps)
    return table if reads and table not in stage.outs else None


def trained_by(repository: Repository, stage: Stage, name: str) -> Stage | None:
    """Return the stage that a row of a stage's table names: by its address, or in its pipeline."""
    return repository.stages.get(f"{stage.file}:{name}") or repository.stages.get(name)


def rows(text: str) -> dict[str, dict[str, str]]:
    """Return the rows of a CSV file by their first column."""
    reader = csv.DictReader(io.StringIO(text))
    first = (reader.fieldnames or [""])[0]
    return {row[first]: row for row in reader}


def compare(file: str, here: str, made: str) -> Iterator[Finding]:
    """Yield where a file differs from what the runs make of it, number by number."""
    if here == made:
        return
    try:
        found = list(_differences(Path(file).suffix, here, made))
    except ValueError as error:
        found = [("", f"cannot be read: {error}")]
    for key, what in found or [("", "differs from what the runs give in its layout")]:
        yield Finding("edited", f"{file}: {key}" if key else file, what, "")


def _differences(suffix: str, here: str, made: str) -> Iterator[tuple[str, str]]:
    """Yield (key, what differs) of a file by its kind."""
    if suffix == ".json":
        for key, what in changes(json.loads(made), json.loads(here)):
            yield key, what.replace("dvc.lock has", "the runs give")
    elif suffix == ".csv":
        ours, theirs = rows(here), rows(made)
        for key in dict.fromkeys((*theirs, *ours)):
            if key not in theirs or key not in ours:
                yield key, "is no row of the runs" if key in ours else "has lost its row"
                continue
            columns = [name for name, v in theirs[key].items() if ours[key].get(name) != v]
            for name in ["printed"] if "printed" in columns else columns:
                what = f"is {ours[key].get(name)!r}, the runs give {theirs[key][name]!r}"
                yield f"{key} {name}", what
    else:
        lines = zip_longest(here.splitlines(), made.splitlines(), fillvalue="")
        for number, (ours, theirs) in enumerate(lines, start=1):
            pairs = list(zip_longest(ours.split("|"), theirs.split("|"), fillvalue=""))
            for a, b in (pair for pair in pairs if pair[0] != pair[1]):
                yield f"line {number}", f"is {_brief(a)!r}, the runs give {_brief(b)!r}"


def _brief(text: str) -> str:
    return textwrap.shorten(text, 70, placeholder=" …")


def check_row(
    repository: Repository, stage: Stage | None, table: str, row: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield where a row of a table of runs is not what the run's files say, as far as here."""
    if stage is None or stage.document is None:
        yield Finding("extra", f"{table}: {row['stage']}", "is a row of no stage that trains", "")
        return
    path = repository.root / stage.document
    if not path.is_file():
        return
    try:
        document = results.read_json(path, f"run `dvc checkout`, or `dvc repro {stage.address}`")
        flat = {**document, **document.get("diagnostics", {})}
        told = {name: flat[name] for name in row if name in flat}
        yield from _unequal(table, stage, stage.document, row, told)
        out = next((out for out in stage.outs if out.startswith("plots/curves/")), None)
        if out and (repository.root / out).is_file():
            told = _told_by_curve(repository, stage, flat, repository.root / out)
            yield from _unequal(table, stage, out, row, told)
    except (UserError, TypeError) as error:
        yield Finding("edited", stage.document, f"cannot be read: {error}", stage.address)


def _unequal(
    table: str, stage: Stage, file: str, row: Mapping[str, str], told: Mapping[str, Any]
) -> Iterator[Finding]:
    for name, value in told.items():
        text = "" if value is None else str(value)
        if name in row and row[name] != text:
            what = f"is {row[name] or 'empty'}, {file} has {text or 'null'}"
            yield Finding("edited", f"{table}: {row['stage']} {name}", what, "")


def _told_by_curve(
    repository: Repository, stage: Stage, flat: Mapping[str, Any], path: Path
) -> dict[str, Any]:
    """Return what a finished run's curve says of its losses."""
    if flat["status"] != "finished":
        return {}
    curve = results.read_curve(path, f"run `dvc checkout`, or `dvc repro {stage.address}`")
    losses = curve["val_loss"]
    best = min(losses)
    told = {
        "best_val_loss": best,
        "best_step": int(curve["step"][losses.index(best)]),
        "final_val_loss": losses[-1],
    }
    scales = (stage.locked.params if stage.locked else {}).get("params.yaml", {})
    dataset = next((v["dataset"] for k, v in scales.items() if k.startswith("scales.")), None)
    if dataset:
        with chdir(repository.root):
            floor = results.read_floor(dataset)["floor"]
        told["escape_step"] = results.escape_step(curve, floor)
    return told
