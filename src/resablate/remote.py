"""The storage that a lab shares: set it up in one command, and check what lies in it.

A remote is a shared folder, an SSH server or an S3 bucket. DVC's own commands use it from then on:
`dvc push`, `dvc pull`, `dvc repro --pull --allow-missing`.
"""

import argparse
import hashlib
import json
import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dvc.exceptions import DvcException
from dvc.repo import Repo

from resablate.errors import UserError
from resablate.pipeline import repository

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
EXTRAS = {  # the module that DVC needs for a scheme: where it comes from
    "ssh": ("dvc_ssh", "requirements.lock"),
    "s3": ("dvc_s3", "requirements-s3.lock"),
}
BLOCK = 1 << 20  # bytes read at once
EXAMPLES = """\
examples:
  python -m resablate remote add /shared/resablate          a folder that all machines mount
  python -m resablate remote add ssh://lab.example.org/srv/resablate
  python -m resablate remote add s3://bucket/resablate
  python -m resablate remote check                          every object that dvc.lock names

Keys and passwords stay outside of the repository: in ~/.ssh, ~/.aws, or in .dvc/config.local, which
`dvc remote modify --local` writes and git ignores."""


class Fault(NamedTuple):
    """An object that the remote lacks, or holds with other content than its name says."""

    path: str  # of the file that the object is, from the repository's root
    oid: str
    state: str  # `missing` or `damaged`
    place: str  # of the object in the remote


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    what = parser.add_subparsers(dest="what", required=True, metavar="add | check")
    add = what.add_parser("add", help="write a remote into .dvc/config, as the default one")
    add.add_argument("url", help="folder, ssh://HOST/PATH or s3://BUCKET/PATH")
    check = what.add_parser("check", help="hash every object that dvc.lock names")
    check.add_argument(
        "--delete-damaged", action="store_true", help="so that a good copy can be pushed again"
    )
    for command in (add, check):
        command.add_argument("--name", default="lab", help="of the remote (default: %(default)s)")


def main(arguments: argparse.Namespace) -> int:
    """Return 0, or 1 where the remote lacks something or holds a damaged object."""
    if arguments.what == "add":
        add(arguments.url, arguments.name)
        return 0
    return check(arguments.name, delete=arguments.delete_damaged)


def settings(url: str) -> dict[str, Any]:
    """Return DVC's configuration of a remote; UserError for a URL that is no remote of ours.

    verify: what comes from the remote is hashed before it is used. shared: files and folders that
    one user makes in a shared folder can be added to by the rest of the folder's group.
    """
    parts = urlsplit(url)
    if parts.password is not None or (parts.scheme == "s3" and "@" in parts.netloc):
        raise UserError(
            "remote: the URL holds a password, and .dvc/config is committed; leave it out, and see"
            " python -m resablate remote --help"
        )
    if not parts.scheme:
        return {"url": str(Path(url).absolute()), "verify": "true", "shared": "group"}
    if parts.scheme not in EXTRAS or not parts.hostname or parts.path in ("", "/"):
        raise UserError(
            f"remote: {url!r}: must be a folder, ssh://HOST/PATH or s3://BUCKET/PATH, with a path"
        )
    module, lock = EXTRAS[parts.scheme]
    if not find_spec(module):
        raise UserError(f"remote: {parts.scheme} needs a package: pip install -r {lock}")
    return {"url": url, "verify": "true"}


def add(url: str, name: str) -> None:
    """Write a remote into .dvc/config, and make it the default one."""
    if not NAME.fullmatch(name):
        raise UserError(f"--name: {name!r}: a letter, then letters, digits, _ and - only")
    chosen = settings(url)
    with repository() as repo, repo.config.edit("repo") as config:
        config["remote"][name] = chosen
        config["core"]["remote"] = name
    print(f"{name}: {chosen['url']}, the default remote, in .dvc/config; commit that file")
    print("send: dvc push --run-cache        get: dvc pull, or dvc repro --pull --allow-missing")


def check(name: str, *, delete: bool = False) -> int:
    """Print every fault of a remote; return 1 if there is one. Reads all objects whole."""
    with repository() as repo:
        try:
            store = repo.cloud.get_remote(name).odb
            store.fs.exists(store.path)
        except DvcException as error:
            raise UserError(str(error)) from None
        except Exception as error:  # each kind of remote raises its own
            raise UserError(f"{name}: cannot be reached: {error}") from None
        objects = dict(_objects(repo, store))
    found = [fault for oid, path in objects.items() if (fault := _fault(store, oid, path))]
    for fault in found:
        print(f"{fault.state}: {fault.path}: object {fault.oid}, {fault.place}")
        if delete and fault.state == "damaged":
            store.fs.remove(fault.place)
    print(f"{name}: {len(objects) - len(found)} of {len(objects)} objects are there and whole")
    if found:
        print("put good copies there from a clone that has them: dvc push (after --delete-damaged)")
    return 1 if found else 0


def _objects(repo: Repo, store: Any) -> Iterator[tuple[str, str]]:
    """Yield the hash and the path of all that the locks name, files in folders included."""
    for out in repo.index.outs:
        if not out.use_cache or not out.hash_info:
            continue
        path, oid = os.path.relpath(out.fs_path, repo.root_dir), out.hash_info.value
        yield oid, path
        if oid.endswith(".dir") and _fault(store, oid, path) is None:
            for entry in json.loads(store.fs.read_bytes(store.oid_to_path(oid))):
                yield entry["md5"], f"{path}/{entry['relpath']}"


def _fault(store: Any, oid: str, path: str) -> Fault | None:
    """Return what is wrong with an object in the remote."""
    place = store.oid_to_path(oid)
    found = hashlib.md5(usedforsecurity=False)
    try:
        with store.fs.open(place, "rb") as file:
            while block := file.read(BLOCK):
                found.update(block)
    except FileNotFoundError:
        return Fault(path, oid, "missing", place)
    intact = found.hexdigest() == oid.removesuffix(".dir")
    return None if intact else Fault(path, oid, "damaged", place)
