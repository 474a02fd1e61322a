"""No file over 350 lines and no function over 60, but for the stated reasons."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINES, FUNCTION = 350, 60
WRITTEN = (".py", ".js", ".css", ".html", ".sh", "Makefile")  # by hand; no results, no locks
LONGER = {  # file or file::function: why
    "tests/test_study_results.py": "one test for each study's sentences and tables",
    "tests/test_variants.py": "one short test for each named difference of the model",
}


def files() -> list[Path]:
    """Return every file of code in the repository."""
    listed = subprocess.run(
        ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "src", "tests"),
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    return [ROOT / name for name in listed if name.endswith(WRITTEN) and (ROOT / name).is_file()]


def longer() -> dict[str, int]:
    """Return the lines of what is longer than the limits."""
    found = {}
    for path in files():
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        found[name] = text.count("\n") - LINES
        for node in ast.walk(ast.parse(text)) if path.suffix == ".py" else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[f"{name}::{node.name}"] = node.end_lineno - node.lineno + 1 - FUNCTION
    return {name: over for name, over in found.items() if over > 0}


def test_what_is_longer_has_a_reason_and_the_reasons_are_needed():
    if not (ROOT / ".git").exists():
        pytest.skip("git lists the files")
    assert longer().keys() == LONGER.keys()
