"""Whether the links of dvc.lock hold: command, parameters, code, data and outs of each stage.

A link holds when what the stage last read, as dvc.lock says, is what its maker made and what is
here now. Files that are kept by DVC and not here are taken from dvc.lock on both sides.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from resablate.repository import Repository, Stage
from resablate.workfiles import md5_of_folder

UNREAD_BYTES = 500_000_000  # of outs that no stage reads, up to which they are hashed
NAMED = 2  # stages in a line, before "and 22 more"


class Finding(NamedTuple):
    """A link that does not hold."""

    kind: str  # stale, missing, extra or edited
    subject: str  # the file, the parameter or the command
    what: str
    stage: str  # the address of the stage that it concerns; empty: none

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject} {self.what}"


def sentences(findings: Iterable[Finding]) -> list[str]:
    """Return a line a difference, whichever number of stages it concerns."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for finding in findings:
        grouped.setdefault(finding[:3], []).append(finding.stage)
    return [str(Finding(*about, "")) + _whom(stages) for about, stages in grouped.items()]


def _whom(stages: list[str]) -> str:
    named = list(filter(None, dict.fromkeys(stages)))
    if not named:
        return ""
    rest = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return f" ({', '.join(named[:NAMED])}{rest})"


class Links:
    """Checks the stages of a repository; a stage is checked once."""

    def __init__(self, repository: Repository, full: bool = False) -> None:
        self.repository, self.files = repository, repository.files
        self._found: dict[str, list[Finding]] = {}
        self._sized = set() if full else self._large()

    @property
    def n_sized(self) -> int:
        """Large outs that no stage reads, of which only the size is compared."""
        return len(self._sized)

    def _large(self) -> set[str]:
        """Return the outs that no stage reads (weights, trails), if they are many bytes."""
        stages = [stage for stage in self.repository.stages.values() if stage.locked]
        read = tuple(f"{dep}/" for stage in stages for dep in dict.fromkeys(stage.locked.deps))
        read = tuple(dict.fromkeys(read))
        unread = {
            out: size
            for stage in stages
            if stage.declared
            for out, size in stage.locked.sizes.items()
            if stage.declared.outs.get(out) and not f"{out}/".startswith(read)
        }
        return set(unread) if sum(unread.values()) > UNREAD_BYTES else set()

    def of(self, stage: Stage) -> list[Finding]:
        """Return what does not hold of a stage; of one that never ran, nothing."""
        if stage.address not in self._found:
            self._found[stage.address] = list(self._check(stage)) if stage.locked else []
        return self._found[stage.address]

    def _check(self, stage: Stage) -> Iterator[Finding]:
        if stage.declared is None:
            what = f"has a stage that {stage.file} no longer has"
            yield Finding("extra", stage.lock, what, stage.address)
            return
        then, now = stage.locked, stage.declared
        if then.cmd != now.cmd:
            what = f"has the command `{now.cmd}`, {stage.lock} `{then.cmd}`"
            yield Finding("stale", stage.file, what, stage.address)
        for file in dict.fromkeys((*then.params, *now.params)):
            for key, what in changes(then.params.get(file, {}), now.params.get(file, {})):
                yield Finding("stale", f"{file}: {key}", what, stage.address)
        for kind, old, new in (
            ("dependency", then.deps, now.deps),
            ("out", then.outs, now.outs),
        ):
            for path in sorted(set(old) ^ set(new)):
                where = (stage.file, stage.lock) if path in new else (stage.lock, stage.file)
                what = f"has the {kind} {path}, {where[1]} has not"
                yield Finding("stale", where[0], what, stage.address)
        for path, md5 in then.deps.items():
            yield from self._dependency(stage, path, md5)
        for path, md5 in then.outs.items():
            yield from self._out(stage, path, md5)

    def _dependency(self, stage: Stage, path: str, md5: str) -> Iterator[Finding]:
        """Compare what a stage read with the file here, or with what its makers made."""
        makers = self.repository.made_within(path)
        if not makers:
            here = self.files.md5(path)
            if here is None:
                yield Finding("missing", path, "is not here", stage.address)
            elif here != md5:
                yield Finding("stale", path, self._differs(path, md5, here), stage.address)
        elif path in makers or any(out.startswith(f"{path}/") for out in makers):
            yield from self._chain(stage, path, md5, makers)

    def _chain(
        self, stage: Stage, path: str, md5: str, makers: Mapping[str, Stage]
    ) -> Iterator[Finding]:
        """Compare what a stage read with what dvc.lock says that the makers made."""
        ran = {out: maker.locked for out, maker in makers.items() if maker.locked}
        made = {out: locked.outs.get(out, "") for out, locked in ran.items()}
        if path in makers:
            known = made.get(path)
        else:
            known = md5_of_folder({out.removeprefix(f"{path}/"): of for out, of in made.items()})
            for file in (f"{path}/{inside}" for inside in self.files.of(path)):
                if file not in makers:
                    what = f"is read by {stage.address}, and no stage makes it"
                    yield Finding("extra", file, what, "")
        if known == md5:
            return  # runs that a grid has and no one has made yet are no fault, unless read
        never = [maker for maker in makers.values() if maker.locked is None]
        for maker in never:
            yield Finding("missing", maker.address, f"never ran, and {stage.address} needs it", "")
        if not never:
            what = f"was made as {short(known)} and read as {short(md5)}, says {stage.lock}"
            yield Finding("stale", path, what, stage.address)

    def _out(self, stage: Stage, path: str, md5: str) -> Iterator[Finding]:
        """Compare an out with what dvc.lock says that the stage made."""
        cached = stage.declared.outs.get(path, True)
        if path in self._sized:
            here = self.repository.root / path
            if here.is_file() and here.stat().st_size != stage.locked.sizes[path]:
                yield Finding("edited", path, "has another size than in dvc.lock", stage.address)
            return
        here = self.files.md5(path)
        if here is None and not cached:
            yield Finding("missing", path, "is kept in git, and not here", stage.address)
        elif here is not None and here != md5:
            what = self._differs(path, md5, here) + ", which dvc checkout brings" * cached
            yield Finding("edited", path, what, stage.address)

    def _differs(self, path: str, md5: str, here: str) -> str:
        inside = self.files.of(path) if (self.repository.root / path).is_dir() else []
        names = [f for f in inside if self.files.differs_from_commit(f"{path}/{f}")]
        named = f", uncommitted: {', '.join(names)}" if names else ""
        if self.files.differs_from_commit(path):
            named = ", uncommitted"
        return f"has MD5 {short(here)} here, {short(md5)} in dvc.lock{named}"


def changes(then: Any, now: Any) -> Iterator[tuple[str, str]]:
    """Yield (dotted key, what became of it) of nested values that differ."""
    old, new = dict(leaves(then)), dict(leaves(now))
    for key in dict.fromkeys((*old, *new)):
        if key not in new:
            yield key, f"is gone; dvc.lock has {old[key]!r}"
        elif key not in old:
            yield key, f"is new: {new[key]!r}"
        elif old[key] != new[key] or type(old[key]) is not type(new[key]):
            yield key, f"is {new[key]!r}, dvc.lock has {old[key]!r}"


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of everything in nested objects that is no object itself."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def short(md5: str | None) -> str:
    """Return the first digits of a hash, enough to tell two apart."""
    return md5[:8] if md5 else "nothing"
