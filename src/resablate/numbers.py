"""Every number that stages keep in git: the cells of tables, and values in their other files."""

import difflib
import json
import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from resablate.errors import UserError
from resablate.links import leaves
from resablate.rederive import Derivations, rows
from resablate.repository import Repository, Stage

VALUES = ("value", "std", "n", "lo", "hi")  # of a cell, beside what is printed
RUNG = re.compile(r"ngram_ladder\.\d+")


class Number(NamedTuple):
    """A number, where it stands, and what is printed of it."""

    id: str
    file: str
    key: str  # in the file
    row: str
    column: str
    printed: str
    value: float | int | str | None
    std: float | None
    n: int | None
    lo: float | None
    hi: float | None
    unit: str | None


class Numbers:
    """Finds numbers by cell, by file and key, or by their digits."""

    def __init__(self, repository: Repository, derivations: Derivations) -> None:
        self.repository, self.derivations = repository, derivations

    @cached_property
    def cells(self) -> dict[str, dict[str, Any]]:
        """Every printed cell by its id: `file`, and its line of that table."""
        found: dict[str, dict[str, Any]] = {}
        for file in self._tables():
            text = (self.repository.root / file).read_text(encoding="utf-8")
            header = text.partition("\n")[0].split(",")
            if header[0] == "id" and "printed" in header:
                for cell, row in rows(text).items():
                    found.setdefault(cell, {"file": file, **_typed(row)})
        return found

    def _tables(self) -> Iterator[str]:
        """Yield the CSV files here that stages keep in git, alone or in a folder."""
        for stage in self.repository.stages.values():
            for out, cached in (stage.declared.outs if stage.declared else {}).items():
                if cached:
                    continue
                folder = (self.repository.root / out).is_dir()
                inside = [f"{out}/{file}" for file in self.repository.files.of(out)]
                for file in inside if folder else [out]:
                    if file.endswith(".csv") and (self.repository.root / file).is_file():
                        yield file

    def search(self, digits: str) -> list[dict[str, Any]]:
        """Return the cells that print a number which these digits are, or are a rounding of."""
        wanted = digits.strip().replace("−", "-").rstrip("×%")
        if not re.fullmatch(r"[-+]?\d+(\.\d+)?", wanted):
            raise UserError(f"--search {digits}: must be a number as a table prints it, e.g. 2.40")
        places = len(wanted.partition(".")[2])
        return [
            {"id": name, **cell}
            for name, cell in self.cells.items()
            if any(_is_rounding(wanted, shown, places) for shown in _shown(cell["printed"]))
        ]

    def find(self, target: str, key: str | None = None) -> Number:
        """Return a cell by its id, or what `key` names in the file `target`; UserError if none."""
        if key is not None:
            return self._in_file(target, key)
        if target not in self.cells:
            raise UserError(
                f"{target}: no such cell{_near(target, self.cells)}; name a cell (--search 2.40"
                " finds those that print it), or a file and a key in it"
            )
        cell = self.cells[target]
        where = (target, cell["file"], target, cell["row"], cell["column"], cell["printed"])
        return Number(*where, *(cell.get(name) for name in VALUES), cell.get("unit"))

    def _in_file(self, name: str, key: str) -> Number:
        root = self.repository.root.absolute()
        path = Path(os.path.relpath(Path(name).absolute(), root)).as_posix()
        if key in self.cells and self.cells[key]["file"] == path:
            return self.find(key)
        values = self._values(path)
        if key not in values:
            raise UserError(f"{path}: has no {key}{_near(key, values)}")
        rung = RUNG.search(key)
        row, _, column = key.rpartition(".")
        printed = "null" if values[key] is None else str(values[key])
        where = (f"{path} {key}", path, key, row, rung[0] if rung else column, printed)
        return Number(*where, values[key], *[None] * len(VALUES))

    def _values(self, path: str) -> dict[str, Any]:
        """Return what a file holds by dotted key; of a run that is not here, what its row has."""
        here = self.repository.root / path
        if here.is_file() and path.endswith(".json"):
            return dict(leaves(json.loads(here.read_text(encoding="utf-8"))))
        if here.is_file() and path.endswith(".csv"):
            typed = {name: _typed(row) for name, row in rows(here.read_text("utf-8")).items()}
            return {f"{name}.{key}": v for name, row in typed.items() for key, v in row.items()}
        stage = self.repository.producers.get(path)
        if stage and stage.document == path and (found := self.derivations.rows.get(stage.address)):
            return {"status": found[0].status, **found[0].values}
        raise UserError(f"{path}: no CSV or JSON file here, nor a run of a table of runs")

    def producer(self, file: str) -> Stage:
        """Return the stage that makes a file; UserError if none does."""
        for out, stage in self.repository.made_within(file).items():
            if file == out or file.startswith(f"{out}/"):
                return stage
        raise UserError(f"{file}: no stage of a dvc.yaml makes it")


def _near(name: str, known: dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or list(known)[:3]
    return f" (there is {', '.join(close)}, …)" if close else ""


def _typed(row: dict[str, str]) -> dict[str, Any]:
    """Return a row with numbers as numbers and empty fields as None; ids and digits stay text."""
    return {k: v if k in ("id", "printed", "row", "column") else _value(v) for k, v in row.items()}


def _value(text: str) -> float | int | str | None:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text or None


def _shown(printed: str) -> list[str]:
    """Return the numbers in printed text, as they stand."""
    return re.findall(r"[-+]?\d+(?:\.\d+)?", printed.replace("−", "-"))


def _is_rounding(wanted: str, shown: str, places: int) -> bool:
    """Whether digits are those shown, or are fewer of them; a sign counts only if it is given."""
    if len(shown.partition(".")[2]) < places:
        return False
    rounded = f"{float(shown):.{places}f}"
    return wanted.lstrip("+") in (rounded, rounded.lstrip("-"))
