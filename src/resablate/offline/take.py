"""`offline take`: check packs against this folder's code, parameters and data, and commit them."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from resablate import dag, paths, pipeline
from resablate.dag import Cell
from resablate.errors import UserError
from resablate.files import whole
from resablate.offline import pack
from resablate.offline.pack import Manifest

TEMPORARY = Path(".dvc/tmp")  # in the same file system as the outs: a rename moves a file


def main(options: argparse.Namespace) -> int:
    """Take every pack of a folder, or none."""
    manifests = [pack.read(path) for path in sorted(options.folder.glob("*.json"))]
    if not manifests:
        raise UserError(f"{options.folder}: holds no <cell>.json; name the folder of `offline run`")
    every = {cell.address: cell for file in dag.FILES for cell in dag.cells(file)}
    problems: list[str] = []
    for manifest in manifests:
        problems += _problems(options, manifest, every.get(manifest.address))
    if problems:
        raise UserError(f"nothing was taken: {'; '.join(problems)}")
    cells = [every[manifest.address] for manifest in manifests]
    TEMPORARY.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TEMPORARY) as name:
        folders = {m.address: Path(name, str(i)) for i, m in enumerate(manifests)}
        for manifest in manifests:
            problems += _unpacked(options, manifest, folders[manifest.address])
        if problems:
            raise UserError(f"nothing was taken: {'; '.join(problems)}")
        for manifest in manifests:
            _place(manifest, folders[manifest.address])
    _commit(cells)
    _verify(cells, manifests)
    for file in dict.fromkeys(cell.file for cell in cells):
        pipeline.order_lock(file)
    print(
        f"{len(cells)} cells taken into {', '.join(dict.fromkeys(map(_lock, cells)))}", flush=True
    )
    return 0


def _problems(options: argparse.Namespace, made: Manifest, cell: Cell | None) -> list[str]:
    """Name what speaks against a pack, its content aside."""
    if cell is None:
        return [f"{made.address} is no cell of the grids here"]
    found = pack.damage(options.folder, made)
    changed = dag.differences(made.inputs.model_dump(), dag.inputs(cell))
    if changed:
        found.append(f"{made.address} was made with another {', '.join(changed)}")
    if not set(cell.outs) <= set(made.files):
        found.append(f"{made.address} lacks {sorted(set(cell.outs) - set(made.files))[0]}")
    if foreign := [name for name in made.files if not _belongs(name, cell)]:
        found.append(f"{made.address} holds {foreign[0]}, which is not its own")
    others = [f"{n} {v}" for n, v in pack.pinned().items() if made.versions.get(n) != v]
    if others and not options.other_versions:
        found.append(f"{made.address} was not made with {', '.join(others)}; see --other-versions")
    return found


def _belongs(name: str, cell: Cell) -> bool:
    """Tell whether a file is an out of the cell, or of the environments' record."""
    path = Path(name)
    recorded = path.is_relative_to(paths.ENVIRONMENTS) and ".." not in path.parts
    return name in cell.outs or recorded


def _unpacked(options: argparse.Namespace, made: Manifest, folder: Path) -> list[str]:
    """Unpack into `folder`; name files that are not as they were, or would replace others."""
    folder.mkdir()
    found = [f"{name} is damaged" for name in pack.unpack(options.folder, made, folder)]
    for name, md5 in made.files.items():
        recorded = Path(name).is_relative_to(paths.ENVIRONMENTS)
        if not (recorded or options.replace) and dag.md5(Path(name)) not in (None, md5):
            found.append(f"{name} is here with other content; see --replace")
    return found


def _place(made: Manifest, folder: Path) -> None:
    for name in made.files:
        with whole(Path(name)) as temporary:
            (folder / name).replace(temporary)


def _commit(cells: list[Cell]) -> None:
    """Have DVC write the cells into dvc.lock, and their outs into its cache."""
    command = (sys.executable, "-P", "-m", "dvc", "commit", "-f", "-q")
    done = subprocess.run(
        (*command, *(cell.address for cell in cells)), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UserError(
            f"dvc commit failed: {done.stderr or done.stdout}; the outs are in place: run it again,"
            f" dvc commit -f {' '.join(cell.address for cell in cells)}"
        )


def _lock(cell: Cell) -> str:
    return cell.file.with_suffix(".lock").as_posix()


def _verify(cells: list[Cell], manifests: list[Manifest]) -> None:
    """UserError if dvc.lock does not say what the manifests say."""
    for cell, made in zip(cells, manifests, strict=True):
        entry = dag.load(Path(_lock(cell)))["stages"][cell.name]
        locked = {dep["path"]: dep["md5"] for dep in (*entry["deps"], *entry["outs"])}
        wanted = {**made.inputs.deps, **{out: made.files[out] for out in cell.outs}}
        if wrong := [name for name in wanted if locked.get(name) != wanted[name]]:
            raise UserError(
                f"{_lock(cell)}: {cell.name}: {', '.join(wrong)} changed while it was taken; run"
                " the same command again"
            )
