"""Where each printed number comes from, once for the whole page and as small as it goes.

Holds only what decides the number: no commit, no environment, nothing of this very clone. The
command `python -m resablate trace ID` adds those, and checks every link.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from resablate.paths import PARAMS
from resablate.provenance import Provenance

KEPT = ("value", "std", "lo", "hi", "n", "unit", "file")


class Pool:
    """Values that are stored once and named by their position."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._known: dict[str, int] = {}

    def add(self, value: Any) -> int:
        key = json.dumps(value, sort_keys=True)
        if key not in self._known:
            self._known[key] = len(self.values)
            self.values.append(value)
        return self._known[key]


def compact(
    provenance: Provenance, ids: Iterable[str], formulas: Mapping[str, str]
) -> dict[str, Any]:
    """Return the lineage of cells: each names runs, stages and texts by their place in lists.

    formulas: by cell, what is computed, where `provenance` has no sentence for it.
    """
    texts, runs, stages, files, parameters, sources = (Pool() for _ in range(6))
    cells: dict[str, Any] = {}
    for identity in ids:
        if identity not in provenance.cells:
            continue
        line = provenance.lineage(identity)
        named = {
            name: _stage(stage, files, parameters)
            for name, stage in line["stages"].items()
            if stage and name != line["producer"]
        }
        cells[identity] = {
            **{key: line[key] for key in KEPT if line.get(key) not in (None, "")},
            "formula": texts.add(line["formula"] or formulas.get(identity)),
            "rounding": texts.add(line["rounding"]),
            "exact": line["runs_exact"],
            "runs": [runs.add(_run(run)) for run in line["runs"]],
            "producer": stages.add([line["producer"], *_of(line, files, parameters)]),
            "stages": [stages.add([name, *parts]) for name, parts in named.items()],
            "sources": [sources.add(_source(source)) for source in line["sources"]],
        }
    pools = {"texts": texts, "runs": runs, "stages": stages, "files": files}
    pools |= {"parameters": parameters, "sources": sources}
    return {"cells": cells, **{name: pool.values for name, pool in pools.items()}}


def _of(line: dict[str, Any], files: Pool, parameters: Pool) -> list[Any]:
    stage = line["stages"].get(line["producer"])
    return _stage(stage, files, parameters) if stage else [None, [], [], []]


def _stage(stage: dict[str, Any], files: Pool, parameters: Pool) -> list[Any]:
    """Return a stage's parameters, code, data and outs, the files as [path, md5].

    Without params files, since only their values decide, and those are shown.
    """
    groups = [
        [
            files.add([path, md5])
            for path, md5 in sorted(stage.get(group, {}).items())
            if not path.endswith(PARAMS.name)
        ]
        for group in ("code", "data", "outs")
    ]
    return [parameters.add(stage.get("parameters", {})), *groups]


def _run(run: dict[str, Any]) -> dict[str, Any]:
    return {key: run.get(key) for key in ("stage", "seed", "status", "values")}


def _source(source: dict[str, Any]) -> dict[str, Any]:
    return {key: source.get(key) for key in ("document", "corpus", "sha256", "stage")}
