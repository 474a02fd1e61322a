"""dvc.lock, read fast: what each stage last read and made."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from resablate.errors import UserError


class _Loader(yaml.CSafeLoader):
    """PyYAML's C parser with the scalars of YAML 1.2, as DVC writes them.

    For dvc.lock, which no one writes by hand: ruamel takes five times as long, seconds for a few
    hundred stages.
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML's way to start afresh)


for _tag, _pattern, _first in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+$", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", "-+."),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


# As DVC writes a lock: an entry a stage, in parts (cmd, deps, params, outs).
_PART = re.compile(r"    \w.*\n(?:    [- ].*\n)*")
_ENTRY = re.compile(rf"  ([\w@.-]+):\n((?:{_PART.pattern})+)")
_LOCK = re.compile(rf"schema: '2\.0'\nstages:\n((?:{_ENTRY.pattern})*)\Z")


def parse_lock(text: str, name: str = "dvc.lock") -> dict[str, Any]:
    """Return the entries of a dvc.lock by stage name, none of an empty text; UserError names it.

    To be read, not changed: stages that depend on the same code share what they have in common.
    """
    try:
        if found := _LOCK.match(text):
            return {entry[1]: _entry(entry[2]) for entry in _ENTRY.finditer(found[1])}
        return (_parsed(text) or {}).get("stages", {})
    except (yaml.YAMLError, AttributeError) as error:
        raise UserError(f"{name}: not a dvc.lock ({error}); try: git checkout {name}") from None


def _entry(text: str) -> dict[str, Any]:
    return {key: value for part in _PART.findall(text) for key, value in _parsed(part).items()}


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    """Return what a text holds; parts of entries, once for all stages that share them."""
    return yaml.load(text, _Loader)


def load_lock(path: Path) -> dict[str, Any]:
    """Return the entries of a dvc.lock by stage name; none where there is no file."""
    return parse_lock(path.read_text(encoding="utf-8"), str(path)) if path.is_file() else {}
