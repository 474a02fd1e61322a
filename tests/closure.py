"""The files of src/ that a module imports, found without running it."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "resablate"


def closure(module: str, src: Path) -> set[Path]:
    """Return the files under `src` that importing `module` runs, directly or not.

    Follows imports at any depth of the code, those inside functions included: they run later, but
    decide results as well. A package's __init__.py runs before its modules. Relative imports are
    refused, since the code has none.
    """
    files: set[Path] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        for file in _files(name, src):
            if file not in files:
                files.add(file)
                waiting += _imports(file)
    return files


def _files(module: str, src: Path) -> Iterator[Path]:
    """Yield the __init__.py of each package around a module, and the module's own file."""
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        path = src.joinpath(*parts[:depth])
        if path.is_dir():
            yield path / "__init__.py"
        elif path.with_suffix(".py").is_file():
            yield path.with_suffix(".py")


def _imports(file: Path) -> Iterator[str]:
    """Yield each name of the package that a file imports; `from a import b` may name a module."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: import by the full name instead"
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        yield from (name for name in names if name.split(".")[0] == PACKAGE)
