"""A run as it stands in the working tree, at a git revision or in a DVC experiment."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from resablate import paths, trail
from resablate.errors import UserError
from resablate.lockfile import parse_lock

CELL = re.compile(r"([A-Za-z]\w*?)-(.+)-(\d+)")
TRAILS, RUNS = Path("metrics/trails"), Path("metrics/runs")
LOCKS = ("dvc.lock", "studies/dvc.lock", "paper/dvc.lock")
OTHER_OWNER = (
    "git refuses this repository, for it belongs to another user; if you trust it:"
    ' git config --global --add safe.directory "$PWD"'
)
LAYERS = ("base", "scales.", "impls.", "configs.")  # of params.yaml, the later overriding


def trail_of(run: str) -> Path:
    """Return the trail of a run: `trial`, SCALE-ARM-SEED, its metrics file or the trail itself."""
    if run == "trial":
        return paths.trial().trail
    if match := CELL.fullmatch(run):
        scale, arm, seed = match.groups()
        return paths.run("main", scale, arm, int(seed)).trail
    path = Path(run)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    if path == paths.trial().metrics:
        return paths.trial().trail
    if path.is_relative_to(RUNS):
        return (TRAILS / path.relative_to(RUNS)).with_suffix(".csv")
    return path


def _metrics_of(path: Path) -> Path | None:
    """Return the metrics file that belongs to a trail; None for a copy kept elsewhere."""
    if path == paths.trial().trail:
        return paths.trial().metrics
    if path.is_relative_to(TRAILS):
        return (RUNS / path.relative_to(TRAILS)).with_suffix(".json")
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name longer than any file's
        return False


def find(text: str, run: str) -> "Snapshot":
    """Return what `text` names: a RUN here, REVISION:RUN, or a revision alone, of which `run`."""
    revision, colon, place = text.partition(":")
    if not revision or (colon and not place):
        raise UserError(f"{text!r} names no run; name RUN, REVISION:RUN or REVISION")
    if colon:
        return Snapshot(text, revision, trail_of(place))
    if _is_file(trail_of(text)):
        return Snapshot(text, None, trail_of(text))
    if text == "trial" or Path(text).suffix in (".csv", ".json"):
        raise UserError(f"{trail_of(text)}: no such file; get it with: dvc pull, or dvc repro")
    return Snapshot(f"{text}:{run}", text, trail_of(run))


class Snapshot:
    """A run's trail and what lies beside it; None for what is not there."""

    def __init__(self, name: str, revision: str | None, path: Path) -> None:
        self.name, self.revision, self.path = name, revision, path

    @cached_property
    def _files(self) -> Any:
        """DVC's view of the repository at the revision: files in git and in the cache alike."""
        # Imported late: DVC takes half a second, and files of the working tree do not need it.
        from dvc.api import DVCFileSystem  # noqa: PLC0415

        try:
            return DVCFileSystem(".", rev=self.revision).repo.dvcfs
        except Exception as error:  # DVC passes on whatever its git libraries make of odd names
            if "not owned by" in str(error):
                raise UserError(OTHER_OWNER) from None
            raise UserError(
                f"{self.revision}: neither a run here (trial, SCALE-ARM-SEED or a file) nor a git"
                f" revision or experiment: {error}"
            ) from None

    def read(self, path: Path) -> str | None:
        """Return a file's text."""
        try:
            if self.revision is None:
                return path.read_text(encoding="utf-8")
            return self._files.read_text(path.as_posix(), encoding="utf-8")
        except FileNotFoundError:
            return None
        except (IsADirectoryError, UnicodeDecodeError):
            raise UserError(f"{path}: not a trail, nor a run's metrics file") from None

    @cached_property
    def text(self) -> str:
        """The trail's file; UserError where there is none."""
        text = self.read(self.path)
        if text is None:
            raise UserError(
                f"{self.path} is not in DVC's cache as of {self.revision}; get it with: dvc fetch,"
                " or name another run"
            )
        return text

    def lines(self) -> list[trail.Line]:
        """Return the trail; UserError names the line where it was edited."""
        try:
            return trail.parse(self.text)
        except trail.BrokenError as error:
            raise UserError(f"{self.name}: the trail's chain is broken: {error}") from None

    def metrics(self) -> dict[str, Any] | None:
        """Return the run's document."""
        return self._json(_metrics_of(self.path))

    def environment(self) -> dict[str, Any] | None:
        """Return the record of the environment in which the run was computed."""
        metrics = _metrics_of(self.path)
        beside = metrics and self._json(paths.ENVIRONMENTS / metrics.relative_to("metrics"))
        return beside and self._json(paths.ENVIRONMENTS / f"{beside['environment']}.json")

    def _json(self, path: Path | None) -> dict[str, Any] | None:
        text = path and self.read(path)
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise UserError(f"{path}: not JSON ({error}); get it back with git or dvc") from None

    @cached_property
    def locked(self) -> dict[str, Any] | None:
        """The stage's entry in dvc.lock, where that is about this very trail."""
        md5 = hashlib.md5(self.text.encode(), usedforsecurity=False).hexdigest()
        for lock in LOCKS:
            for stage in parse_lock(self.read(Path(lock)) or "", lock).values():
                for out in stage.get("outs", ()):
                    if out["path"] == self.path.as_posix() and out.get("md5") == md5:
                        return stage
        return None

    def settings(self) -> dict[str, Any] | None:
        """Return the parameters that decided the run, by name."""
        return self.locked and _resolve(self.locked.get("params", {}).get("params.yaml", {}))

    def inputs(self) -> dict[str, Any] | None:
        """Return the hash of each file that the run depended on, code and data."""
        return self.locked and {dep["path"]: dep["md5"] for dep in self.locked.get("deps", ())}


def _resolve(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a stage's entry in dvc.lock, layer over layer, as params.yaml says."""
    found: dict[str, Any] = {}
    impl = next((key.removeprefix("impls.") for key in params if key.startswith("impls.")), None)
    for layer in LAYERS:
        for key in (key for key in params if key.startswith(layer)):
            found |= params[key]
            if layer == "impls.":
                scale = next((v for k, v in params.items() if k.startswith("scales.")), {})
                found |= scale.get("impl", {}).get(impl, {})
    found.pop("impl", None)
    top = {k: v for k, v in params.items() if not isinstance(v, dict) and v is not None}
    return found | top
