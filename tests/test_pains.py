"""PAINS.md answers every line, by tests that exist."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
TEXT = (HERE / "PAINS.md").read_text(encoding="utf-8")
NUMBERED = 32  # lines of public trackers
PITFALLS = 13


def rows(text: str) -> list[list[str]]:
    """Return the cells of each row of a text's tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [cells for cells in found if "Tested by" not in cells and cells[0].strip("-:")]


def names_in(path: Path) -> set[str]:
    """Return the names of a file's tests; none if it is not there."""
    if not path.is_file():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_line_is_answered():
    numbers = [int(cells[0]) for cells in rows(TEXT) if cells[0].isdecimal()]
    assert numbers == list(range(1, NUMBERED + 1))
    science = TEXT.split("## Pitfalls of this science")[1].split("\n## ")[0]
    assert len(rows(science)) == PITFALLS
    assert all(re.search(r"`test_\w+\.py::test_\w+`", cells[-1]) for cells in rows(TEXT))


def test_each_named_test_exists():
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", TEXT)
    assert len(named) > 80
    assert [pair for pair in named if pair[1] not in names_in(HERE / pair[0])] == []
