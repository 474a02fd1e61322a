"""What the paper reports: the strict schema of data/reported.yaml, and its entries by id.

A group's keys hold for its entries unless an entry says otherwise. `printed` is the paper's own
text; the numbers beside it are checked against it, so that a slip in either is an error.
"""

import math
import re
import statistics
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from resablate.claims import CLAIMS
from resablate.errors import UserError
from resablate.strict import Schema, Strict, first_line, read

REGISTRY = Path("data/reported.yaml")
NUMBER = re.compile(r"\d[\d,]*\.?\d*")
FACTORS = {"K": 1e3, "M": 1e6}


class Quantity(Strict):
    """What a number counts or measures, and in which unit."""

    unit: str
    label: str = Field(description="what a table calls it")
    means: str


class Group(Strict):
    """What entries of one table or section share."""

    source: str = Field(default="", description="version, section, table or figure of the paper")
    scale: Literal["gpt10m", "gpt124m"] | None = None
    impl: Literal["nanogpt", "residualgpt"] | None = None
    config: Literal["full", "attn_only", "ffn_only", "no_res"] | None = None
    quantity: str = Field(default="", description="a key of `quantities`")
    seeds: list[int] | None = Field(default=None, description="as the paper names them")
    comparable: bool = Field(
        default=True, description="false: made under conditions that no run here has; see `note`"
    )


class Entry(Group):
    """One reported number, setting or statement."""

    id: str
    title: str = Field(description="of its group")
    unit: str
    label: str
    printed: str = Field(min_length=1)
    mean: float | None = None
    std: float | None = Field(default=None, description="as printed: population, see X10")
    n: int | None = Field(default=None, ge=1, description="runs; by default one a seed")
    values: list[float] | None = Field(default=None, description="one a run")
    lo: float | None = None
    hi: float | None = None
    value: bool | int | float | str | None = Field(default=None, description="of a setting")
    setting: str | None = Field(default=None, description="the key of a resolved run")
    dataset: str | None = Field(default=None, description="whose document holds the count")
    claim: str | None = Field(default=None, description="what must hold at any scale")
    where: str | None = Field(default=None, description="where a statement is carried out here")
    note: str | None = None

    @property
    def count(self) -> int | None:
        """Runs behind the number, where the paper says it."""
        counted = self.values or self.seeds
        return self.n or (len(counted) if counted else None)

    @property
    def center(self) -> float | None:
        """The reported mean; of a list of runs, their mean."""
        return statistics.fmean(self.values) if self.values else self.mean

    @property
    def spread(self) -> float | None:
        """The sample standard deviation over seeds; the paper prints the population one (X10)."""
        if self.values:
            return statistics.stdev(self.values)
        if self.std is None or self.count is None or self.count < 2:
            return None
        return self.std * math.sqrt(self.count / (self.count - 1))

    @model_validator(mode="after")
    def _as_printed(self) -> Self:
        """Refuse numbers that the printed text does not say, and unknown claims."""
        said = {float(text.replace(",", "")) for text in NUMBER.findall(self.printed)}
        said |= {x * factor for letter, factor in FACTORS.items() if letter in self.printed
                 for x in said}  # fmt: skip
        numbers = {"mean": [self.mean], "std": [self.std], "values": self.values or []}
        numbers |= {"lo": [self.lo], "hi": [self.hi]}
        for key, held in numbers.items():
            for number in held:
                spelled = self.printed == "roughly sixteen times" and number == 16
                close = any(math.isclose(number or 0, x, rel_tol=1e-9) for x in said)
                if number is not None and not close and not spelled:
                    raise ValueError(
                        f"{key}: {number!r} is not in what is printed, {self.printed!r}"
                    )
        if self.claim is not None and self.claim not in CLAIMS:
            raise ValueError(f"claim: {self.claim!r} must be one of {', '.join(CLAIMS)}")
        if (self.setting is None) != (self.quantity != "setting"):
            raise ValueError("setting: must be set where quantity is setting, and only there")
        return self


class Registry(Strict):
    """data/reported.yaml as a whole, its groups and entries unchecked."""

    quantities: dict[str, Quantity]
    groups: list[dict[str, Any]]

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """Every entry by its id, in the file's order."""
        found: dict[str, Entry] = {}
        for position, raw in enumerate(self.groups):
            where = f"groups.{position}"
            for key, kind in (("entries", dict), ("title", str)):
                if not isinstance(raw.get(key), kind):
                    raise UserError(f"{REGISTRY}: {where}.{key}: must be set")
            shared = {key: value for key, value in raw.items() if key not in ("entries", "title")}
            _check(Group, shared, where)
            for name, own in raw["entries"].items():
                if name in found:
                    raise UserError(f"{REGISTRY}: {name}: stands in two groups; keep one")
                if not isinstance(own, dict):
                    raise UserError(f"{REGISTRY}: {name}: must be a mapping, not {own!r}")
                found[name] = self._entry(name, raw["title"], shared | own)
        return found

    def _entry(self, name: str, title: str, values: dict[str, Any]) -> Entry:
        quantity = values.get("quantity")
        if quantity not in self.quantities:
            known = ", ".join(self.quantities)
            raise UserError(f"{REGISTRY}: {name}.quantity: {quantity!r} must be one of {known}")
        of = self.quantities[quantity]
        given = {"id": name, "title": title, "unit": of.unit, "label": of.label}
        return _check(Entry, values | given, name)

    def mean(self, name: str) -> float:
        """Return an entry's number; UserError where it has none."""
        center = self[name].center
        if center is None:
            raise UserError(f"{REGISTRY}: {name}.mean: must be set")
        return center

    def __getitem__(self, name: str) -> Entry:
        if name not in self.entries:
            raise UserError(f"{REGISTRY}: {name}: must be there; put the entry back")
        return self.entries[name]


def _check(schema: type[Schema], values: object, where: str) -> Schema:
    """Validate; UserError names the first wrong key."""
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{REGISTRY}: {where}.{first_line(error)}") from None


def load(path: Path = REGISTRY) -> Registry:
    """Read and check the registry; UserError names the first key that is wrong."""
    return _load(path, path.read_bytes() if path.is_file() else b"")


@lru_cache(maxsize=1)  # half a second, and tables are derived a hundred times to find their runs
def _load(path: Path, content: bytes) -> Registry:
    """Return what a file holds as long as its content is this."""
    registry = read(path, Registry)
    _ = registry.entries  # checked here and now
    return registry
