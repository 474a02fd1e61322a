"""dvc.lock, read fast: what each stage last read and made."""

import re
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


def parse_lock(text: str, name: str = "dvc.lock") -> dict[str, Any]:
    """Return the entries of a dvc.lock by stage name, none of an empty text; UserError names it."""
    try:
        return (yaml.load(text, _Loader) or {}).get("stages", {})
    except (yaml.YAMLError, AttributeError) as error:
        raise UserError(f"{name}: not a dvc.lock ({error}); try: git checkout {name}") from None


def load_lock(path: Path) -> dict[str, Any]:
    """Return the entries of a dvc.lock by stage name; none where there is no file."""
    return parse_lock(path.read_text(encoding="utf-8"), str(path)) if path.is_file() else {}
