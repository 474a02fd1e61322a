"""Files of the working tree: their MD5 as DVC computes it, and their blobs in git."""

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from pathspec import GitIgnoreSpec


class Files:
    """The files below a root; each is hashed once, however many stages read it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        ignore = root / ".dvcignore"
        lines = ignore.read_text(encoding="utf-8").splitlines() if ignore.is_file() else []
        self._ignored = GitIgnoreSpec.from_lines(lines)
        self._md5: dict[str, str | None] = {}

    def md5(self, path: str) -> str | None:
        """Return a file's or a folder's MD5; None if it is not here."""
        if path not in self._md5:
            here = self.root / path
            if here.is_dir():
                self._md5[path] = md5_of_folder({f: self.md5(f"{path}/{f}") for f in self.of(path)})
            else:
                self._md5[path] = _md5(here.read_bytes()) if here.is_file() else None
        return self._md5[path]

    def of(self, folder: str) -> list[str]:
        """Return the files that DVC sees in a folder, relative to it, sorted."""
        found = []
        for parent, _, names in os.walk(self.root / folder):
            inside = Path(parent).relative_to(self.root / folder)
            found += [(inside / name).as_posix() for name in names]
        return sorted(f for f in found if not self._ignored.match_file(f"{folder}/{f}"))

    @cached_property
    def blobs(self) -> dict[str, str]:
        """Git's blob of each file in the last commit; empty where there is no git."""
        listed = self._git("ls-tree", "-r", "-z", "HEAD")
        entries = (line.split("\t", 1) for line in listed.split("\0") if line)
        return {path: what.split()[2] for what, path in entries}

    @cached_property
    def commit(self) -> str | None:
        """The last commit; None where there is none."""
        return self._git("rev-parse", "HEAD").strip() or None

    def differs_from_commit(self, path: str) -> bool:
        """Whether a file that is in the last commit has other bytes here, or is gone."""
        if path not in self.blobs:
            return False
        here = self.root / path
        if not here.is_file():
            return True
        content = here.read_bytes()
        header = f"blob {len(content)}\0".encode()
        blob = hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
        return blob != self.blobs[path]

    def _git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.root), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except FileNotFoundError:
            return ""
        return done.stdout.decode() if done.returncode == 0 else ""


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def md5_of_folder(files: Mapping[str, str | None]) -> str:
    """Return DVC's MD5 of a folder, from those of its files by their paths in it."""
    listing = [{"md5": files[path], "relpath": path} for path in sorted(files)]
    return _md5(json.dumps(listing, sort_keys=True).encode()) + ".dir"
