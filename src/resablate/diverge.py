"""Name the first difference between two runs: step, phase, layer, tensor, element, ulps.

A and B are each a run of the working tree (trial, SCALE-ARM-SEED, or its trail or metrics file),
REVISION:RUN, or a git revision or DVC experiment alone, of which --run is taken.
Exit status: 0 identical, 1 different, 2 wrong use.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import numpy as np

from resablate.snapshot import Snapshot, find
from resablate.trail import WORD, Line

RESULTS = ("status", "best_val_loss", "final_val_loss", "full_val_loss")
EXAMPLES = """\
examples:
  python -m resablate diverge tiny-residualgpt-full-1337 HEAD~1:tiny-residualgpt-full-1337
  python -m resablate diverge main my-experiment                 the trial of both
  python -m resablate diverge trial copy/of/another/trail.csv"""
Key = tuple[str, str, str]
Pairs = dict[str, tuple[Any, Any]]


@dataclass(frozen=True)
class First:
    """The first fingerprint, in causal order, that differs."""

    step: int  # of the curve, at which it is seen
    since: int | None  # the step of the curve before, at which all agrees
    phase: str  # init, data, forward, backward, or update: between `since` and `step`
    layer: str
    tensor: str
    shapes: tuple[str, str]
    ulps: int | None  # b - a, the net over elements; of tokens the difference of ids
    element: list[int] | None  # its index, if it is the only one that differs
    values: tuple[float, float] | None  # of a scalar
    differing: int  # tensors of this step and phase that differ
    of: int


@dataclass(frozen=True)
class Comparison:
    """Two trails beside each other."""

    agreeing: int  # fingerprints in causal order before the first that differs
    common: int  # fingerprints that both have
    only: tuple[int, int]  # that just one has
    ends: tuple[str, str]
    first: First | None


def compare(a: list[Line], b: list[Line]) -> Comparison:
    """Compare two trails by (step, phase, tensor), in the order of `a`."""
    lines_a, lines_b = ({line[:3]: line for line in lines[:-1]} for lines in (a, b))
    common = [key for key in lines_a if key in lines_b]
    unequal = [key for key in common if lines_a[key][3:5] != lines_b[key][3:5]]
    first = _first(unequal, common, lines_a, lines_b) if unequal else None
    return Comparison(
        agreeing=common.index(unequal[0]) if unequal else len(common),
        common=len(common),
        only=(len(lines_a) - len(common), len(lines_b) - len(common)),
        ends=(f"{a[-1].tensor} at step {a[-1].step}", f"{b[-1].tensor} at step {b[-1].step}"),
        first=first,
    )


def _first(
    unequal: list[Key], common: list[Key], a: Mapping[Key, Line], b: Mapping[Key, Line]
) -> First:
    """Describe the first of the keys at which lines differ."""
    key = unequal[0]
    before = [int(step) for step, *_ in common if int(step) < int(key[0])]
    since = max(before, default=None)
    phase = key[1] if key[1] != "weights" else "init" if key[0] == "0" else "update"
    shapes = (a[key].shape, b[key].shape)
    ulps = element = values = None
    if shapes[0] == shapes[1]:
        ulps, element = locate(a[key], b[key])
        if not shapes[0]:
            values = (float.fromhex(a[key].hash), float.fromhex(b[key].hash))
    return First(
        step=int(key[0]), since=since, phase=phase, layer=_layer(key[2]), tensor=key[2],
        shapes=shapes, ulps=ulps, element=element, values=values,
        differing=sum(other[:2] == key[:2] for other in unequal),
        of=sum(other[:2] == key[:2] for other in common),
    )  # fmt: skip


def locate(a: Line, b: Line) -> tuple[int, list[int] | None]:
    """Return by how many ulps in sum b exceeds a, and the element if it is one alone.

    One element e that differs by u makes the three sums differ by u, u e and u e^2.
    """
    pairs = zip((a.sum, a.index_sum, a.square_sum), (b.sum, b.index_sum, b.square_sum), strict=True)
    u, ue, uee = ((int(y) - int(x) + WORD // 2) % WORD - WORD // 2 for x, y in pairs)
    shape = [int(n) for n in a.shape.split("x")] if a.shape else []
    if u == 0 or ue % u or not 0 <= (e := ue // u) < prod(shape) or (uee - u * e * e) % WORD:
        return u, None
    return u, [int(i) for i in np.unravel_index(e, shape)] if shape else []


def _layer(tensor: str) -> str:
    """Return the part of the model that a tensor belongs to, in words."""
    if tensor.startswith("blocks."):
        return f"block {tensor.split('.')[1]}"
    if tensor.startswith(("wte", "wpe", "embedding")):
        return "embedding"
    names = {"ln_f": "last LayerNorm", "head": "head", "loss": "loss"}
    return names.get(tensor.partition(".")[0], "batch")


def differences(a: dict[str, Any] | None, b: dict[str, Any] | None) -> Pairs | None:
    """Return what differs by key, None standing for a missing one; None if a side is unknown."""
    if a is None or b is None:
        return None
    keys = dict.fromkeys((*a, *b))
    return {key: (a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)}


def report(a: Snapshot, b: Snapshot) -> dict[str, Any]:
    """Return all that is known of how two runs differ; `identical` is about trails and results."""
    trails = compare(a.lines(), b.lines())
    documents = (a.metrics(), b.metrics())
    results = differences(*documents)
    unequal = trails.first or any(trails.only) or trails.ends[0] != trails.ends[1] or results
    return {
        "a": a.name,
        "b": b.name,
        "identical": not unequal,
        "trail": asdict(trails),
        "results": {key: [d and d.get(key) for d in documents] for key in RESULTS},
        "results_differ": results and sorted(results),
        "parameters": differences(a.settings(), b.settings()),
        "inputs": differences(a.inputs(), b.inputs()),
        "environment": differences(a.environment(), b.environment()),
    }


# -- in words --------------------------------------------------------------------------------------


def render(found: dict[str, Any]) -> str:
    """Return a report for the terminal."""
    rows = [("A", [found["a"]]), ("B", [found["b"]])]
    rows += _trail(found["trail"], found["identical"])
    rows.append(("results", _results(found)))
    for name in ("parameters", "inputs", "environment"):
        rows.append((name.replace("inputs", "code and data"), _pairs(found[name], name)))
    width = max(len(name) for name, _ in rows) + 2
    lines = []
    for name, texts in rows:
        lines += [f"{name if i == 0 else '':{width}}{text}" for i, text in enumerate(texts)]
    return "\n".join(lines)


def _trail(trail: dict[str, Any], identical: bool) -> list[tuple[str, list[str]]]:
    first, (only_a, only_b) = trail["first"], trail["only"]
    rows = []
    if first:
        rows.append(("first difference", [_where(first), _what(first)]))
        rows.append(("before it", [f"{trail['agreeing']} of {trail['common']} fingerprints agree"]))
    elif identical:
        rows.append(("identical", [f"all {trail['common']} fingerprints, bit for bit"]))
    else:
        rows.append(("no difference", [f"in the {trail['common']} fingerprints that both have"]))
    if only_a or only_b:
        rows.append(("not compared", [f"{only_a} fingerprints only in A, {only_b} only in B"]))
    if trail["ends"][0] != trail["ends"][1]:
        rows.append(("ends", [f"A {trail['ends'][0]}, B {trail['ends'][1]}"]))
    return rows


def _where(first: dict[str, Any]) -> str:
    """Return step, phase, layer and tensor."""
    step, since, phase = first["step"], first["since"], first["phase"]
    place = f"{first['layer']}: {first['tensor']}"
    if phase != "update":
        return f"step {step}, {phase}, {place}"
    if step == since + 1:
        return f"step {since}, update, {place}"
    return f"steps {since} to {step - 1}, update, {place} (no trail between these steps)"


def _what(first: dict[str, Any]) -> str:
    """Return how large the difference is, and how far it reaches."""
    ulps, (shape_a, shape_b) = first["ulps"], first["shapes"]
    unit = "in token id" if first["phase"] == "data" else "ulp" if ulps in (1, -1) else "ulps"
    if ulps is None:
        size = f"shape {shape_a} in A, {shape_b} in B"
    elif first["values"]:
        size = f"{first['values'][0]!r} in A, {first['values'][1]!r} in B: {ulps:+d} {unit}"
    elif first["element"] is not None:
        size = f"one element, {first['element']}, by {ulps:+d} {unit}"
    else:
        size = f"several elements of {shape_a}, by {ulps:+d} {unit} net of signs"
    return f"{size}; {first['differing']} of {first['of']} tensors of this phase differ"


def _results(found: dict[str, Any]) -> list[str]:
    lines = []
    for name, (a, b) in found["results"].items():
        if a == b:
            continue
        known = isinstance(a, float) and isinstance(b, float)
        lines.append(f"{name} {a} in A, {b} in B" + (f" ({b - a:+.3g})" if known else ""))
    if found["results_differ"] is None:
        return ["unknown: no metrics file beside A or B", *lines]
    hidden = [name for name in found["results_differ"] if name not in found["results"]]
    return lines + ([f"also different: {', '.join(hidden)}"] if hidden else []) or ["equal"]


def _pairs(pairs: Pairs | None, name: str) -> list[str]:
    if pairs is None:
        missing = "environment record" if name == "environment" else "entry in dvc.lock"
        return [f"unknown: no {missing} for A or B"]
    if name == "inputs":
        return [f"{key} {_verb(*pair)}" for key, pair in pairs.items()] or ["equal"]
    return [f"{key}: {a} in A, {b} in B" for key, (a, b) in pairs.items()] or ["equal"]


def _verb(a: str | None, b: str | None) -> str:
    return "is only in A" if b is None else "is only in B" if a is None else "differs"


# -- command ---------------------------------------------------------------------------------------


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument(
        "--run", default="trial", help="of a revision named alone: SCALE-ARM-SEED (default: trial)"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def main(arguments: argparse.Namespace) -> int:
    """Print the report; return the exit status."""
    a, b = (find(text, arguments.run) for text in (arguments.a, arguments.b))
    found = report(a, b)
    print(json.dumps(found, indent=1) if arguments.json else render(found))
    return 0 if found["identical"] else 1
