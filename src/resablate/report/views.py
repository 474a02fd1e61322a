"""What the page shows, read from the files that the pipeline's stages left."""

import base64
import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from resablate.cells import NONE
from resablate.errors import UserError
from resablate.results import read_json
from resablate.tables import NOT_RUN

TOLD = ("title", "question", "conclusion", "counts", "table", "figures")  # by a study's document
NO_NUMBER = (NONE, NOT_RUN)
CODE = re.compile(r"`([^`]*)`|\*([^*]+)\*")


class Span(NamedTuple):
    """A piece of a sentence: plain, or Markdown's `code` or *stress*."""

    text: str
    tag: str | None = None


class CellView(NamedTuple):
    """A printed cell; `id` leads to its lineage; `numeric` cells stand to the right."""

    id: str
    printed: str
    numeric: bool


class Grid(NamedTuple):
    """A section of a table: headers, and rows of a label and cells."""

    head: str
    columns: list[str]
    rows: list[tuple[list[Span], list[CellView]]]

    def numeric(self, column: int) -> bool:
        """Return whether a column holds numbers."""
        return any(cells[column].numeric for _, cells in self.rows)


class TableView(NamedTuple):
    """A table as its Markdown and its cells say."""

    name: str
    title: str
    grids: list[Grid]
    notes: list[list[Span]]


class Figure(NamedTuple):
    """A picture inside the page."""

    name: str
    caption: str
    uri: str


class Study(NamedTuple):
    """One open question: what was asked, found, from how many runs, with which table and figures.

    Without a conclusion it has not been run.
    """

    name: str
    title: str
    question: str
    conclusion: str | None = None
    counts: str = ""
    table: TableView | None = None
    figures: Sequence[Figure] = ()


def spans(text: str) -> list[Span]:
    """Split a sentence at Markdown's `code` and *stress*."""
    found, at = [], 0
    for match in CODE.finditer(text):
        found.append(Span(text[at : match.start()]))
        found.append(Span(match[1], "code") if match[1] is not None else Span(match[2], "em"))
        at = match.end()
    return [span for span in (*found, Span(text[at:])) if span.text]


def table(stem: Path) -> TableView:
    """Read <stem>.md for its words and <stem>.csv for its cells; UserError unless they agree."""
    cells = iter(_rows(stem.with_suffix(".csv")))
    title, grids, notes = stem.name, [], []
    for block in _read(stem.with_suffix(".md")).strip().split("\n\n"):
        lines = block.splitlines()
        if block.startswith("# "):
            title = block.removeprefix("# ")
        elif block.startswith("|"):
            grids.append(_grid(lines, cells, stem))
        else:
            notes += [spans(line.removeprefix("- ")) for line in lines]
    if next(cells, None) is not None:
        raise _apart(stem)
    return TableView(stem.name, title, grids, notes)


def _grid(lines: Sequence[str], cells: Iterator[dict[str, str]], stem: Path) -> Grid:
    """Return one Markdown table, each printed cell under the id of the next line of the CSV."""
    (head, *columns), _, *rows = (_split(line) for line in lines)
    grid = Grid(head, columns, [])
    for label, *row in rows:
        views = []
        for printed in row:
            cell = next(cells, None)
            if cell is None or " ".join(cell["printed"].split()) != " ".join(printed.split()):
                raise _apart(stem)
            views.append(CellView(cell["id"], printed, bool(cell["unit"])))
        grid.rows.append((spans(label), views))
    return grid


def _split(line: str) -> list[str]:
    return [part.strip() for part in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _apart(stem: Path) -> UserError:
    return UserError(
        f"{stem}.md and {stem.name}.csv do not belong together; make both again: dvc repro -f -s"
        " with the stage that writes them"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; make it with: dvc repro") from None


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(_read(path).splitlines()))


def tables(folder: Path) -> list[TableView]:
    """Return every table of a folder: the paper's by number, then the others by name."""
    stems = sorted(path.with_suffix("") for path in folder.glob("*.md"))
    order = sorted(stems, key=lambda stem: (not stem.name.startswith("table"), stem.name))
    return [table(stem) for stem in order]


def numbers(shown: Iterable[TableView]) -> list[str]:
    """Return the ids of the cells that print a number."""
    rows = (row for view in shown for grid in view.grids for _, row in grid.rows)
    return [
        cell.id for row in rows for cell in row if cell.numeric and cell.printed not in NO_NUMBER
    ]


def figure(path: Path, caption: str) -> Figure:
    """Return a picture as a data URI, so that the page needs no other file."""
    kind = {".svg": "image/svg+xml", ".png": "image/png"}[path.suffix]
    try:
        content = base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; make it with: dvc repro") from None
    return Figure(path.stem, caption, f"data:{kind};base64,{content}")


def studies(folder: Path) -> list[Study]:
    """Return the studies of a folder of <study>.json, with the table and the figures they name."""
    found = []
    for path in sorted(folder.glob("*.json")):
        told = read_json(path, "run the study's stage again")
        if missing := [key for key in TOLD if key not in told]:
            raise UserError(f"{path}: lacks {missing[0]}; run the study's stage again")
        words = (told["title"], told["question"], told["conclusion"])
        counts = ", ".join(f"{n} {what}" for what, n in told["counts"].items())
        drawn = [
            figure(Path(name), f"{told['title']}{f', figure {i}' if i > 1 else ''}")
            for i, name in enumerate(told["figures"], start=1)
        ]
        shown = table(Path(told["table"]).with_suffix(""))
        found.append(Study(path.stem, *map(str, words), counts, shown, drawn))
    return found


def runs(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Return the runs of a pipeline as runs.csv has them, these columns of them."""
    return [{name: row.get(name, "") for name in columns} for row in _rows(path)]
