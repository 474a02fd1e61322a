"""Check that every table, summary and figure is what the code, parameters, data and runs here give.

Of every dvc.yaml: the links of dvc.lock (commands, parameters, code, what one stage made and
another read), then every digit of the tables and summaries, computed again from the table of runs,
and its rows from the runs' files, as far as these are here. Runs no stage; needs git alone.
Exit status: 0 all holds, 1 something does not (a line each), 2 wrong use.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from resablate.links import Finding, Links, leaves, sentences
from resablate.rederive import (
    Derivation,
    Derivations,
    check_row,
    compare,
    rows,
    table_of,
    trained_by,
)
from resablate.repository import Repository, Stage, pipelines
from resablate.results import NOT_RUN

LINES = 8  # of one file that differs in more places
EXAMPLES = """\
examples:
  python -m resablate verify
  python -m resablate verify --full      hash large files too; make tables and figures again"""


@dataclass
class Report:
    """What was found: faults, what was checked, and what could not be."""

    faults: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--full",
        action="store_true",
        help="hash every file, however large; run again, in a scratch folder, each stage all of"
        " whose outs are in git (tables, figures)",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def main(arguments: argparse.Namespace) -> int:
    """Print the report; return the exit status."""
    found = verify(Path(), arguments.full)
    if arguments.json:
        print(json.dumps(vars(found), indent=1))
    else:
        for label, lines in (("checked", found.checked), ("not checked", found.unchecked)):
            print(*(f"{label}: {line}" for line in lines), sep="\n", end="\n" if lines else "")
        print(*found.faults or ["all holds"], sep="\n")
    return 1 if found.faults else 0


def verify(root: Path, full: bool = False) -> Report:
    """Check a repository; see the module."""
    repository = Repository(root)
    report = Report()
    findings = [*_chain(repository, Links(repository, full), report)]
    derivations = Derivations(repository)
    for stage in repository.stages.values():
        if made := derivations.of(stage):
            findings += _tables(root, stage, made, report)
        if (table := table_of(stage)) and (root / table).is_file():
            findings += _rows(repository, stage, table, report)
    findings += derivations.damaged
    drawn = [s for s in repository.stages.values() if _is_in_git(s) and not derivations.of(s)]
    if full:
        for stage in filter(_is_in_git, repository.stages.values()):
            findings += _run_again(repository, stage, report)
    elif drawn:
        names = ", ".join(stage.address for stage in drawn)
        what = "their outs and what they read are as in dvc.lock; --full makes them again"
        report.unchecked.append(f"made again: {names} ({what})")
    report.faults = sentences(_shortened(findings))
    return report


def _chain(repository: Repository, links: Links, report: Report) -> Iterator[Finding]:
    """Yield the links that do not hold, of all stages."""
    stages = list(repository.stages.values())
    for stage in stages:
        yield from links.of(stage)
    ran = [stage for stage in stages if stage.locked]
    counts = Counter(stage.file for stage in ran)
    deps = sum(len(stage.locked.deps) for stage in ran)
    values = sum(len(list(leaves(stage.locked.params))) for stage in ran)
    outs = [(stage, out) for stage in ran if stage.declared for out in stage.locked.outs]
    for file, count in counts.items():
        of = f"{_n(count, 'stage')} of {file}"
        report.checked.append(f"{of} against {Path(file).with_suffix('.lock')}")
    many = {"command": len(ran), "parameter": values, "dependency": deps, "out": len(outs)}
    report.checked.append(", ".join(_n(count, name) for name, count in many.items()))
    absent = [out for stage, out in outs if stage.declared.outs.get(out) and _gone(repository, out)]
    if absent:
        report.unchecked.append(
            f"{len(absent)} of {_n(len(outs), 'out')}, kept by DVC and not here (dvc pull, or dvc"
            " repro): taken as dvc.lock has them"
        )
    if links.n_sized:
        report.unchecked.append(
            f"{_n(links.n_sized, 'large out')} that no stage reads: size only (--full hashes them)"
        )
    never = Counter(stage.file for stage in stages if not stage.locked)
    for file, count in never.items():
        report.unchecked.append(f"{_n(count, 'stage')} of {file}, never run")


def _n(count: int, name: str) -> str:
    """Return a count with its noun."""
    plural = f"{name[:-1]}ies" if name.endswith("cy") else f"{name}s"
    return f"{count} {name if count == 1 else plural}"


def _gone(repository: Repository, out: str) -> bool:
    return not (repository.root / out).exists()


def _is_in_git(stage: Stage) -> bool:
    """Whether a stage has run, and all its outs are kept in git."""
    ran = stage.declared and stage.locked and stage.module
    return bool(ran) and not any(stage.declared.outs.values())


def _tables(root: Path, stage: Stage, made: Derivation, report: Report) -> Iterator[Finding]:
    """Compare every number of a stage's files with what the table of runs gives."""
    cells = values = 0
    for file, text in made.made.items():
        if file.endswith(".csv") and file != made.table:
            cells += len(rows(text))
        elif file.endswith(".json"):
            values += len(list(leaves(json.loads(text))))
        path = root / file
        if path.is_file():
            yield from compare(file, path.read_text(encoding="utf-8", errors="replace"), text)
        else:
            yield Finding("missing", file, "is not here, and the runs give it", stage.address)
    for out in stage.outs:
        for path in sorted((root / out).rglob("*")):
            file = path.relative_to(root).as_posix()
            if path.is_file() and file not in made.made and not path.name.startswith("."):
                yield Finding("extra", file, "is no file that the runs give", stage.address)
    tables = " and ".join(made.tables)
    n = f"{_n(cells, 'cell')} and {_n(values, 'summary value')}"
    report.checked.append(f"{n}, computed from {_n(len(made.runs), 'row')} of {tables}")


def _rows(repository: Repository, stage: Stage, table: str, report: Report) -> Iterator[Finding]:
    """Compare the rows of a table of runs with the stages that train, and with their files."""
    here, ran, named = 0, 0, set()
    for name, row in rows((repository.root / table).read_text(encoding="utf-8")).items():
        trained = trained_by(repository, stage, name)
        yield from check_row(repository, trained, table, row)
        if trained and trained.document:
            named.add(trained.address)
            here += (repository.root / trained.document).is_file()
            ran += row["status"] != NOT_RUN
    # A stage may borrow runs of others, of which it has no rows: of none of their matrix.
    groups = set(map(_group, named))
    for dep in stage.declared.deps if stage.declared else ():
        for maker in repository.made_within(dep).values():
            of_these = maker.document and maker.declared and _group(maker.address) in groups
            if of_these and maker.address not in named:
                what = "has no row in it, and the stage reads it"
                yield Finding("missing", f"{table}: {maker.address}", what, "")
    report.checked.append(f"{_n(here, 'row')} of {table} against the runs' own files")
    if here < ran:
        report.unchecked.append(
            f"{ran - here} of {_n(ran, 'row')} of {table}: the runs' files are not here (dvc pull)"
        )


def _group(address: str) -> str:
    """Return the matrix that a stage belongs to."""
    return address.partition("@")[0]


def _run_again(repository: Repository, stage: Stage, report: Report) -> Iterator[Finding]:
    """Run a stage in a scratch folder that holds what it declares, and compare its outs."""
    root = repository.root.resolve()
    needed = [*stage.declared.deps, *stage.declared.params]
    if gone := [path for path in needed if not (root / path).exists()]:
        report.unchecked.append(f"made again: {stage.address}, which needs {gone[0]} (dvc pull)")
        return
    with tempfile.TemporaryDirectory() as scratch:
        # A page prints each number's lineage, which dvc.yaml and dvc.lock hold.
        for path in dict.fromkeys([*needed, *_declarations(root)]):
            link = Path(scratch, path)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(root / path)
        search = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        done = subprocess.run(
            stage.declared.cmd, shell=True, cwd=scratch, env=os.environ | {"PATH": search},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            yield Finding("stale", stage.address, f"fails when it is run again: {said}", "")
            return
        for out in stage.declared.outs:
            for path in _files(Path(scratch, out)):
                file = path.relative_to(scratch).as_posix()
                here = root / file
                if not here.is_file() or here.read_bytes() != path.read_bytes():
                    what = "is another when the stage is run again"
                    yield Finding("edited", file, what, stage.address)
    report.checked.append(f"{stage.address}, run again: every out byte for byte")


def _declarations(root: Path) -> list[str]:
    """Return every dvc.yaml and what lies beside it: dvc.lock and parameters."""
    beside = (file for made in pipelines(root) for file in made.parent.iterdir())
    return [
        file.relative_to(root).as_posix()
        for file in sorted(beside)
        if file.name == "dvc.lock" or file.suffix == ".yaml"
    ]


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def _shortened(findings: list[Finding]) -> Iterator[Finding]:
    """Yield the findings, of many in one file or in one folder of runs the first and a count."""
    seen: Counter[str] = Counter()
    for finding in findings:
        file = finding.subject.partition(": ")[0]
        if finding.what.endswith("dvc checkout brings"):
            file = "/".join(file.split("/")[:2])
        if finding.kind == "edited":
            seen[file] += 1
        if finding.kind != "edited" or seen[file] <= LINES:
            yield finding
    for file, count in seen.items():
        if count > LINES:
            yield Finding("edited", file, f"differs in {count - LINES} more places", "")
