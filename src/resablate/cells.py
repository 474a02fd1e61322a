"""Table cells: each printed number under an id, with the full values that it is rounded from."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from resablate.stats import Estimate

NONE = "—"


class Kind(NamedTuple):
    """A unit and how numbers in it are printed: the only rounding of all tables."""

    unit: str
    spec: str
    suffix: str = ""

    def __call__(self, value: float | None) -> str:
        return NONE if value is None else f"{value:{self.spec}}{self.suffix}"


LOSS = Kind("nats/token", ".4f")
DIFFERENCE = Kind("nats/token", "+z.4f")
BITS = Kind("bits/byte", ".4f")
PERPLEXITY = Kind("perplexity", ".2f")
RATIO = Kind("ratio", ".2f", "×")
PERCENT = Kind("%", "+z.1f", "%")
RUNS = Kind("runs", "d")
COUNT = Kind("count", ",d")
STEP = Kind("steps", ".0f")
SCORE = Kind("score", ".3f")
SHARE = Kind("%", ".1f", "%")
NORM = Kind("L2 norm", ".3g")
SIGNIFICANCE = Kind("p", ".2g")
ROUNDING = (
    "Rounded here only (half to even), from the full values beside this file in `{name}.csv`: nats"
    " and bits to 4 decimals, perplexities and ratios to 2, percentages to 1."
)


class Content(NamedTuple):
    """What a cell shows: a value, with its spread or its interval, or the interval alone."""

    kind: Kind
    estimate: Estimate
    style: Literal["value", "spread", "interval", "both"] = "value"
    text: str | None = None  # printed instead, where words say more than the number

    def printed(self) -> str:
        if self.text is not None:
            return self.text
        show, (_, mean, std, lo, hi) = self.kind, self.estimate
        interval = NONE if lo is None else f"[{show(lo)}, {show(hi)}]"
        if self.style == "interval":
            return interval
        if mean is None or self.style == "value":
            return show(mean)
        return (
            f"{show(mean)} ± {show(std)}" if self.style == "spread" else f"{show(mean)} {interval}"
        )


def value(kind: Kind, number: float | None, n: int = 1, text: str | None = None) -> Content:
    """Return a cell of one number over n runs, without a spread."""
    return Content(kind, Estimate(n, number, None, None, None), text=text)


class Cell(NamedTuple):
    """A line of a table's CSV file."""

    id: str
    table: str
    row: str
    column: str
    value: float | int | None
    printed: str
    std: float | None
    n: int
    lo: float | None
    hi: float | None
    unit: str


@dataclass(frozen=True)
class Section:
    """A grid of cells: `columns` maps keys to headers, `rows` keys to a label and the contents."""

    head: str
    columns: Mapping[str, str]
    rows: Mapping[str, tuple[str, Mapping[str, Content]]]


@dataclass(frozen=True)
class Table:
    """A table of the paper or of a study: one or more sections and the notes under them."""

    key: int | str  # the paper's number, or the study's name
    title: str
    sections: Sequence[Section]
    notes: Sequence[str]
    pipeline: str = ""  # other than the root's, which has tables of the same numbers

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"table{self.key}" if isinstance(self.key, int) else self.key

    @property
    def prefix(self) -> str:
        """What the ids of its cells begin with."""
        own = f"T{self.key}" if isinstance(self.key, int) else self.key
        return f"{self.pipeline}.{own}" if self.pipeline else own

    @property
    def heading(self) -> str:
        return f"Table {self.key}. {self.title}" if isinstance(self.key, int) else self.title

    def cells(self) -> list[Cell]:
        """Return every cell, in reading order."""
        return [
            self._cell(row, column, contents[column])
            for section in self.sections
            for row, (_, contents) in section.rows.items()
            for column in section.columns
        ]

    def _cell(self, row: str, column: str, content: Content) -> Cell:
        table = self.prefix
        n, mean, std, lo, hi = content.estimate
        if content.style == "interval":
            mean = std = None
        identity = (f"{table}.{row}.{column}", table, row, column)
        return Cell(*identity, mean, content.printed(), std, n, lo, hi, content.kind.unit)


def markdown(table: Table) -> str:
    """Render a table from its cells."""
    printed = {cell.id: cell.printed for cell in table.cells()}
    lines = [f"# {table.heading}", ""]
    for section in table.sections:
        lines.append(f"| {section.head} | {' | '.join(section.columns.values())} |")
        lines.append(f"|---{'|---:' * len(section.columns)}|")
        for row, (label, _) in section.rows.items():
            shown = (printed[f"{table.prefix}.{row}.{column}"] for column in section.columns)
            lines.append(f"| {label} | {' | '.join(shown)} |")
        lines.append("")
    lines += [f"- {note}" for note in table.notes]
    return "\n".join(lines) + "\n"


def texts(folder: Path, table: Table) -> dict[Path, str]:
    """Return a table's files, by path: its cells in full as CSV, and the table as markdown."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Cell._fields)
    writer.writerows(table.cells())
    return {
        folder / f"{table.name}.csv": text.getvalue(),
        folder / f"{table.name}.md": markdown(table),
    }
