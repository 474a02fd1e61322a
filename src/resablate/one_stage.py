"""`dvc repro -s` of one stage, in a time that does not grow with its pipeline's dvc.lock.

    python -P one_stage.py studies/dvc.yaml:gain@attn_only-run_2-42

DVC parses the whole lock before a stage and once more behind it, in pure Python, and writes all of
it again: half a minute a stage where a lock has 600 of them. Here only the stage's own entry is
parsed and written; the lock's text is the same. Run by its path: it imports nothing of the package.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

from dvc import dvcfile
from dvc.cli import main as dvc
from dvc.stage import serialize
from dvc.utils.serialize import dumps_yaml, parse_yaml

# As DVC writes it, and nothing else: entries of stages whose keys are plain and on one line.
HEAD = "schema: '2.0'\nstages:\n"
STAGE = r"  {}:\n(?:   .*\n)+"
ENTRY = re.compile(STAGE.format(r"([\w@.-]+)"))
FORM = re.compile(rf"{re.escape(HEAD)}(?:{ENTRY.pattern})*\Z")


def entries(text: str) -> dict[str, str]:
    """Return the text of each stage's entry; none of a lock that is not as DVC writes it."""
    return {found[1]: found[0] for found in ENTRY.finditer(text)} if FORM.match(text) else {}


def entry(text: str, name: str) -> re.Match[str] | None:
    """Return where a stage stands in the text of a lock."""
    return re.search("(?<=\n)" + STAGE.format(re.escape(name)), text)


def replaced(text: str, name: str, made: str) -> str:
    """Return the text of a lock with a stage's entry in its place, or else at its end."""
    if found := entry(text, name):
        return text[: found.start()] + made + text[found.end() :]
    return text + made


class Lockfile(dvcfile.Lockfile):
    """A lock of which one stage is seen; other locks are as DVC has them."""

    stage = ""  # its name
    own = Path("dvc.lock")  # where it stands

    def _text(self) -> str | None:
        """Return the lock's text; None where it is another, not as DVC writes it, or not there."""
        if Path(self.path).absolute() != self.own:
            return None
        try:
            text = Path(self.path).read_text(encoding="utf-8")
        except (OSError, UnicodeError):
            return None  # DVC has its own words for these
        return text if FORM.match(text) else None

    def _load(self, **kwargs: Any) -> tuple[Any, str]:
        text = self._text()
        if text is None:
            return super()._load(**kwargs)
        found = entry(text, self.stage)
        document = {"schema": "2.0", "stages": {}}
        if found:
            document |= parse_yaml(f"stages:\n{found[0]}", self.path)
        return self.validate(document, self.relpath), text

    def dump_stages(self, stages: list[Any], **kwargs: Any) -> None:
        text = self._text()
        if text is None or [stage.name for stage in stages] != [self.stage]:
            super().dump_stages(stages, **kwargs)
            return
        made = dumps_yaml({"stages": serialize.to_lockfile(stages[0], **kwargs)})
        new = replaced(text, self.stage, made.removeprefix("stages:\n"))
        if new == text:
            return
        part = Path(self.path).with_name(f".dvc.lock.{os.getpid()}.part")
        part.write_text(new, encoding="utf-8")
        part.replace(self.path)  # whole or not at all
        self.repo.scm_context.track_file(self.relpath)


def main(address: str) -> int:
    """Run the stage; return DVC's exit status."""
    file, _, Lockfile.stage = address.rpartition(":")
    Lockfile.own = Path(file or "dvc.yaml").absolute().with_suffix(".lock")
    dvcfile.Lockfile = Lockfile
    return dvc(["--wait-for-lock", "repro", "--single-item", address])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
