"""A toy pipeline in DVC's own terms, with the shape of the real one, for tests of the sweep."""

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
ENVIRONMENT = os.environ | {
    "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
    "PYTHONPATH": str(ROOT / "src"),
}
STAGES = """\
stages:
  check:
    cmd: cp checker schema
    deps: [params.yaml, checker]
    outs:
      - schema: {cache: false}
  prepare:
    cmd: python stage.py prepare data/tokens
    deps: [schema]
    outs: [data/tokens]
  train:
    matrix:
      impl: ${grid.impl}
    cmd: python stage.py ${item.impl} metrics/runs/${item.impl}
    deps: [data/tokens, stage.py]
    params: ["impls.${item.impl}"]
    outs: ["metrics/runs/${item.impl}"]
  trial:
    cmd: python stage.py trial metrics/trial
    deps: [data/tokens, stage.py]
    params: [seed]
    outs: [metrics/trial]
  aggregate:
    cmd: python stage.py aggregate metrics/summary.json
    deps: [metrics/runs]
    outs:
      - metrics/summary.json: {cache: false}
  figures:
    cmd: python stage.py figures plots/figure.svg
    deps: [metrics/summary.json]
    outs:
      - plots/figure.svg: {cache: false}
"""
# In a folder beside the repository, a stage notes that it has begun or ended; a file there may tell
# it to fail, or to wait for another.
STAGE = """\
import os, sys, time
from pathlib import Path
name, out = sys.argv[1:]
side = Path(os.environ.get("TOY_SIDE", "../side"))
def note(event):
    (side / f"{event}-{name}").write_text(os.environ.get("GLIBC_TUNABLES", ""))
    with (side / "events").open("a") as file:
        file.write(f"{event} {name} {os.environ.get('OMP_NUM_THREADS')}\\n")
note("began")
progress = Path(os.environ.get("RESABLATE_PROGRESS", os.devnull))
progress.write_text('{"step": 3, "steps": 4, "loss": 2.5, "tokens_per_s": 10.0}')
if (side / f"fail-{name}").exists():
    sys.exit(f"error: {name} has been told to fail")
wait = side / f"wait-{name}"
while wait.exists() and not (side / wait.read_text()).exists():
    time.sleep(0.05)
Path(out).parent.mkdir(parents=True, exist_ok=True)
Path(out).write_text(name + Path("params.yaml").read_text())
note("ended")
"""


class Toy:
    """A repository of the toy pipeline; the folder `side`, beside it, steers its stages."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "repository"
        self.side = folder / "side"
        self.lock = self.root / "dvc.lock"

    @classmethod
    def create(cls, folder: Path, *init: str) -> "Toy":
        """Write the files and initialise DVC with the options `init`."""
        toy = cls(folder)
        toy.side.mkdir(parents=True)
        toy.root.mkdir()
        for name in ("params.yaml", ".dvcignore"):
            shutil.copy(ROOT / name, toy.root)
        (toy.root / "dvc.yaml").write_text(STAGES)
        (toy.root / "stage.py").write_text(STAGE)
        (toy.root / "checker").write_text("1")
        if "--no-scm" not in init:
            toy.run("git", "init", "--quiet")
        toy.dvc("init", "--quiet", *init)
        toy.dvc("config", "core.analytics", "false")
        toy.dvc("config", "core.check_update", "false")
        return toy

    def copy(self, folder: Path) -> "Toy":
        """Return a copy under another folder, with its cache."""
        shutil.copytree(self.root.parent, folder)
        return Toy(folder)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command that must succeed."""
        return subprocess.run(
            command, cwd=self.root, env=ENVIRONMENT, check=True, capture_output=True, text=True
        )

    def dvc(self, *arguments: str) -> str:
        return self.run(sys.executable, "-m", "dvc", *arguments).stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a sweep."""
        return subprocess.Popen(
            (sys.executable, "-m", "resablate.sweep", *arguments),
            cwd=self.root,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def sweep(self, *arguments: str, status: int = 0) -> str:
        """Run a sweep that must exit with `status`; return what it printed."""
        process = self.start(*arguments)
        printed, _ = process.communicate(timeout=180)
        assert process.returncode == status, printed
        return printed

    def tell(self, what: str, content: str = "") -> Path:
        """Write `fail-NAME`, or `wait-NAME` with `began-OTHER` or `ended-OTHER`, into `side`."""
        path = self.side / what
        path.write_text(content)
        return path

    def events(self) -> list[tuple[str, str, str]]:
        """Return (began or ended, stage, OMP_NUM_THREADS) of all that happened since last asked."""
        file = self.side / "events"
        lines = file.read_text().splitlines() if file.exists() else []
        for path in (file, *self.side.glob("began-*"), *self.side.glob("ended-*")):
            path.unlink(missing_ok=True)
        return [tuple(line.split()) for line in lines]

    def began(self) -> list[str]:
        """Return the names of the stages that have begun since last asked, sorted."""
        return sorted(name for event, name, _ in self.events() if event == "began")

    def wait_for(self, what: str) -> None:
        """Wait until `began-NAME` or `ended-NAME` is there."""
        deadline = time.monotonic() + 90
        while not (self.side / what).exists():
            assert time.monotonic() < deadline, f"no {what}"
            time.sleep(0.05)

    def processes(self) -> list[psutil.Process]:
        """Return every process that works in the repository."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if Path(process.cwd()).is_relative_to(self.root):
                    found.append(process)
        return found
