"""The files of one cell between two machines: a manifest, and an archive cut into parts."""

import hashlib
import json
import re
import tarfile
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from resablate import dag, paths
from resablate.dag import Cell
from resablate.errors import UserError
from resablate.files import write_bytes, write_text
from resablate.strict import Strict, first_line

PART_BYTES = 15 << 20
NUMERICS = Path("requirements-numerics.lock")
DECIDING = ("torch", "numpy", "safetensors")  # of those pinned there, what a run imports


class Inputs(Strict):
    """What decided a run, as `dag.inputs` has it."""

    cmd: str
    deps: dict[str, str | None]
    params: dict[str, Any]


class Part(Strict):
    """A piece of the archive."""

    name: str
    sha256: str


class Manifest(Strict):
    """What a pack holds."""

    address: str
    inputs: Inputs
    versions: dict[str, str]
    files: dict[str, str]  # outs, and the environment's record: md5 by path
    parts: list[Part]


def stem(cell: Cell) -> str:
    """Return what the names of a cell's files begin with: letters, digits, `_`, `-` only."""
    return re.sub(r"\W+", "-", cell.address.replace("dvc.yaml:", "")).strip("-")


def versions() -> dict[str, str]:
    """Return the installed versions, without the build's mark (2.13.0+cpu: 2.13.0)."""
    return {name: metadata.version(name).partition("+")[0] for name in DECIDING}


def pinned() -> dict[str, str]:
    """Return the versions that requirements-numerics.lock names."""
    lines = NUMERICS.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line)
    return {name: version for name, version in pairs if name in DECIDING}


def environment_files(cell: Cell) -> list[Path]:
    """Return the record beside a run: the line that names its environment, and that."""
    metrics = next(
        (Path(out) for out in cell.outs if Path(out).is_relative_to("metrics/runs")), None
    )
    if metrics is None:
        raise UserError(f"{cell.address}: leaves no metrics/runs/..., hence is no training run")
    beside = paths.ENVIRONMENTS / metrics.relative_to("metrics")
    key = json.loads(beside.read_text(encoding="utf-8"))["environment"]
    return [beside, paths.ENVIRONMENTS / f"{key}.json"]


def write(folder: Path, cell: Cell, inputs: dict[str, Any]) -> None:
    """Pack a finished run; the manifest comes last, so that a pack with one is complete."""
    manifest = folder / f"{stem(cell)}.json"
    manifest.unlink(missing_ok=True)
    packed = [*map(Path, cell.outs), *environment_files(cell)]
    archive = folder / f".{stem(cell)}.tar"
    try:
        with tarfile.open(archive, "w") as tar:
            for path in packed:
                tar.add(path)
        parts = _cut(archive)
    finally:
        archive.unlink(missing_ok=True)
    names = {part["name"] for part in parts}
    for path in folder.glob(f"{stem(cell)}.part*"):
        if path.name not in names:  # of a longer archive
            path.unlink()
    document = {
        "address": cell.address,
        "inputs": inputs,
        "versions": versions(),
        "files": {path.as_posix(): dag.md5(path) for path in packed},
        "parts": parts,
    }
    write_text(manifest, json.dumps(document, indent=1) + "\n")


def _cut(archive: Path) -> list[dict[str, str]]:
    parts = []
    with archive.open("rb") as file:
        while content := file.read(PART_BYTES):
            name = f"{archive.stem.removeprefix('.')}.part{len(parts):03}"
            write_bytes(archive.with_name(name), content)
            parts.append({"name": name, "sha256": hashlib.sha256(content).hexdigest()})
    return parts


def read(path: Path) -> Manifest:
    """Read a manifest; UserError where it is none."""
    try:
        return Manifest.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise UserError(f"{path}: not a manifest: {first_line(error)}") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); bring it again") from None


def damage(folder: Path, manifest: Manifest) -> list[str]:
    """Name the parts that are missing or not as the manifest has them."""
    found = []
    for part in manifest.parts:
        path = folder / Path(part.name).name
        if not path.is_file():
            found.append(f"{part.name} is missing")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != part.sha256:
            found.append(f"{part.name} is damaged")
    return found


def unpack(folder: Path, manifest: Manifest, target: Path) -> list[str]:
    """Write the archive's files below `target`; name those that are not the manifest's."""
    archive = target / "archive.tar"
    with archive.open("wb") as file:
        for part in manifest.parts:
            file.write((folder / Path(part.name).name).read_bytes())
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and member.name in manifest.files:
                tar.extract(member, target, filter="data")
    archive.unlink()
    return [name for name, md5 in manifest.files.items() if dag.md5(target / name) != md5]
