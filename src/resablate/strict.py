"""YAML files with a strict schema, and errors in one line that names the key."""

import io
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from resablate.errors import UserError


class Strict(BaseModel):
    """No unknown keys, no conversions, no NaN or infinity."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


Schema = TypeVar("Schema", bound=Strict)


def read(path: Path, schema: type[Schema]) -> Schema:
    """Read a YAML file of a strict schema; UserError names the first key that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
        values = YAML(typ="safe", pure=True).load(io.StringIO(text))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; run from the repository's root") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except YAMLError as error:
        raise UserError(f"{path}: {_yaml_line(error)}") from None
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits; 1,000 brackets
        raise UserError(f"{path}: no parameters: {str(error).partition(';')[0]}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: must be a mapping of keys, not {type(values).__name__}")
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{path}: {first_line(error)}") from None


def _yaml_line(error: YAMLError) -> str:
    """Return a YAML error as one line: the place and the problem."""
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}: " if mark else ""
    problem = getattr(error, "problem", None) or str(error)
    return f"{place}{problem.strip().splitlines()[0]}"


def first_line(error: ValidationError, origin: Mapping[str, str] | None = None) -> str:
    """Return pydantic's first error as `key: value: what is allowed`."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":  # our own: the message begins with the key
        key = message.split(":")[0]
        prefix = f"{where}." if where else ""
        return message.replace(key, (origin or {}).get(key, prefix + key), 1)
    if first["type"] == "extra_forbidden":
        return f"{where}: unknown key; remove it or correct its spelling"
    if first["type"] == "missing":
        return f"{where}: must be set"
    return f"{where or 'the file'}: {reprlib.repr(first['input'])}: {message}"
