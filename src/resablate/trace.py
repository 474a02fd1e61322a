"""Trace a printed number back to its runs, and from them to code, parameters and data.

CELL is the id of a table's cell (in its CSV file), or a file with KEY: of a JSON file the dotted
key, of metrics/runs.csv STAGE.COLUMN. Needs git alone: no data, no cache, no remote.
Exit status: 0 every link is current, 1 one is broken (it says which), 2 wrong use.
"""

import argparse
import json
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from resablate.errors import UserError
from resablate.provenance import Provenance

LABEL = 13  # columns of the labels at the left
MAX_WIDTH = 120
DIGITS = 12  # of a hash; --json has all
FACTS = ("cpu", "instruction_set", "gpu", "driver", "python", "torch", "numpy", "threads")
EXAMPLES = """\
examples:
  python -m resablate trace T3.attn_only.best_val_loss
  python -m resablate trace --search 2.40              the cells that print it, or round to it
  python -m resablate trace metrics/summary.json tiny.residualgpt.full.best_val_loss
  python -m resablate trace metrics/runs/main/tiny/residualgpt-full/1337.json best_val_loss
  python -m resablate trace T3.attn_only.best_val_loss --json"""


class Row(NamedTuple):
    """A label and what stands beside it: lines to be wrapped, or those of a table."""

    label: str
    texts: Sequence[str]
    is_table: bool = False


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("cell", metavar="CELL", nargs="?", help="id of a cell, or a file")
    parser.add_argument("key", metavar="KEY", nargs="?", help="the number's key in the file")
    parser.add_argument("--search", metavar="DIGITS", help="list the cells that print a number")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def main(arguments: argparse.Namespace) -> int:
    """Print the lineage, or the cells that were searched; return the exit status."""
    if (arguments.cell is None) == (arguments.search is None):
        raise UserError("name a CELL, or --search DIGITS; examples: trace --help")
    known = Provenance(Path())
    if arguments.search is not None:
        cells = known.numbers.search(arguments.search)
        lines = _columns([(c["id"], c["printed"], c["unit"] or "", c["file"]) for c in cells])
        shown = "\n".join(lines) or f"no cell prints {arguments.search}, nor rounds to it"
        print(json.dumps(cells, indent=1) if arguments.json else shown)
        return 0 if cells else 1
    found = known.lineage(arguments.cell, arguments.key)
    print(json.dumps(found, indent=1) if arguments.json else render(found))
    return 1 if found["broken"] else 0


# -- in words --------------------------------------------------------------------------------------


def render(found: Mapping[str, Any]) -> str:
    """Return a lineage for the terminal; what several runs share is said once."""
    runs = {run["stage"] for run in found["runs"]}
    # Of a run the name before the @, so that the runs of a matrix are one group.
    groups = {name: name.partition("@")[0] if name in runs else name for name in found["stages"]}
    parts = (
        _number(found),
        _runs(found),
        _commands(found["stages"], groups),
        _parameters(found["stages"], groups),
        _code(found, groups),
        _data(found, groups),
        _links(found),
    )
    width = min(MAX_WIDTH, shutil.get_terminal_size((100, 24)).columns) - LABEL
    return "\n\n".join("\n".join(_lines(rows, width)) for rows in parts)


def _lines(rows: Iterable[Row], width: int) -> Iterator[str]:
    """Yield lines with the labels at their left; texts are wrapped, tables are not."""
    for row in rows:
        label = row.label
        for text in row.texts:
            indent = " " * (len(text) - len(text.lstrip()) + 2)
            wrapped = textwrap.wrap(
                text, width, subsequent_indent=indent,
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
            for line in [text] if row.is_table else wrapped:
                yield f"{label:{LABEL}}{line}".rstrip()
                label = ""


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([f"{text:{w}}" for text, w in zip(row, widths, strict=True)] for row in rows)
    return ["  ".join(row).rstrip() for row in padded]


def _number(found: Mapping[str, Any]) -> Iterator[Row]:
    unit = f" {found['unit']}" if found["unit"] else ""
    yield Row(found["id"], [f"  {found['printed']}{unit}"], is_table=True)
    known = (("", "value"), ("standard deviation ", "std"), ("n = ", "n"))
    parts = [f"{text}{found[name]}" for text, name in known if found[name] is not None]
    if found["lo"] is not None:
        parts.append(f"interval [{found['lo']}, {found['hi']}]")
    yield Row("in full", [", ".join(parts) or "no value"])
    yield Row("file", [f"{found['file']}, written by the stage {found['producer']}"])
    for name in ("formula", "rounding"):
        if found[name]:
            yield Row(name, [found[name]])


def _runs(found: Mapping[str, Any]) -> Iterator[Row]:
    runs, measures = found["runs"], found["measures"]
    if not runs:
        yield Row("runs", ["none: no run decides it"])
        return
    if not found["runs_exact"]:
        yield Row("", ["every run that the stage read; which of them decide it is not known"])
    table = [("seed", "status", *measures, "environment", "stage")]
    for run in runs:
        values = [str(run["values"].get(name, "")) for name in measures]
        said = (run["environment"] or "not recorded", run["stage"])
        table.append((str(run["seed"] or ""), run["status"] or "", *values, *said))
    yield Row(f"{len(runs)} run{'s' * (len(runs) > 1)}", _columns(table), is_table=True)
    for name, record in found["environments"].items():
        facts = [f"{key} {record[key]}" for key in FACTS if record.get(key) is not None]
        yield Row("environment", [f"{name}: {', '.join(facts)}"])


def _commands(stages: Mapping[str, Any], groups: Mapping[str, str]) -> Iterator[Row]:
    """Yield the command of each stage; those of a matrix as one, words that differ in braces."""
    said = []
    for group in dict.fromkeys(groups.values()):
        commands = [stages[name]["command"].split() for name in groups if groups[name] == group]
        words = [dict.fromkeys(column) for column in zip_longest(*commands, fillvalue="")]
        one = " ".join(next(iter(w)) if len(w) == 1 else f"{{{','.join(w)}}}" for w in words)
        said.append(f"{group}: {one}")
    yield Row("commands", said)


def _parameters(stages: Mapping[str, Any], groups: Mapping[str, str]) -> Iterator[Row]:
    """Yield the parameters of each group of stages, equal ones once; of params.yaml unless said."""
    lines = []
    for group in dict.fromkeys(groups.values()):
        names = [name for name in groups if groups[name] == group]
        said = Counter(
            (file, key, _brief(value))
            for name in names
            for file, values in stages[name]["parameters"].items()
            for key, value in values.items()
        )
        lines += [group] if said else []
        for (file, key, value), count in said.items():
            where = "" if file == "params.yaml" else f"{file} "
            some = f" ({count} of the {len(names)} runs)" if count < len(names) else ""
            lines.append(f"  {where}{key}{some}: {value}")
    yield Row("parameters", lines or ["none"])


def _brief(value: Any) -> str:
    """Return a parameter's value on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_brief(inner)}" for key, inner in value.items())
    return json.dumps(value, ensure_ascii=False)


def _code(found: Mapping[str, Any], groups: Mapping[str, str]) -> Iterator[Row]:
    """Yield the files of code with their hashes, by the stages that read them."""
    unsorted = _readers(found["stages"], groups, "code")
    # Of a stage that never ran no hash is known.
    readers = {
        about: unsorted[about] for about in sorted(unsorted, key=lambda of: (of[0], of[1] or ""))
    }
    rows = {("", ""): (f"{len(readers)} files", "MD5 read", "blob at HEAD", "")}
    for path, md5 in readers:
        known = found["files"].get(path, {})
        blob = (known.get("blob") or "not in git")[:DIGITS]
        state = known.get("state", "unknown") + ", uncommitted" * known.get("uncommitted", False)
        rows[path, md5] = (f"  {path}", (md5 or "")[:DIGITS], blob, state)
    aligned = dict(zip(rows, _columns(list(rows.values())), strict=True))
    lines = [aligned.pop(("", ""))]
    for who in dict.fromkeys(readers.values()):
        lines.append(f"read by {', '.join(who) if set(who) != set(groups.values()) else 'all'}")
        lines += [aligned[about] for about in readers if readers[about] == who]
    yield Row("code", lines, is_table=True)


def _data(found: Mapping[str, Any], groups: Mapping[str, str]) -> Iterator[Row]:
    """Yield the files that stages make and others read, and where the texts are from."""
    table = [("file or folder", "MD5", "", "read by")]
    for (path, md5), who in _readers(found["stages"], groups, "data").items():
        state = found["files"].get(path, {}).get("state", "unknown")
        here = "not here, kept by DVC" if state == "absent" else state
        table.append((path, (md5 or "")[:DIGITS], here, ", ".join(who)))
    yield Row("data", _columns(table), is_table=True)
    for source in found["sources"]:
        where = source["url"] or "address not recorded"
        hashed = f"SHA-256 {source['sha256']}"
        yield Row("source", [f"{source['corpus']}, {source['document']}", where, hashed])


def _readers(
    stages: Mapping[str, Any], groups: Mapping[str, str], kind: str
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the groups of stages that read each (file, MD5)."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for name, stage in stages.items():
        for about in stage[kind].items():
            found.setdefault(about, {})[groups[name]] = None
    return {about: tuple(who) for about, who in found.items()}


def _links(found: Mapping[str, Any]) -> Iterator[Row]:
    at = f"commit {found['commit'][:DIGITS]}" if found["commit"] else "no commit"
    if found["broken"]:
        yield Row("BROKEN", [*found["broken"], f"(at {at})"])
        return
    kinds = ("code", "data", "outs", "parameters")
    n = sum(len(stage[kind]) for stage in found["stages"].values() for kind in kinds)
    yield Row("links", [f"all {n} current, of {len(found['stages'])} stages, at {at}"])
