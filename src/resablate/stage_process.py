"""One stage that runs in a process group of its own: its log, its progress, its end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from resablate import allocator, guard, one_stage
from resablate.display import Watch

FOLDER = Path(".sweep")  # ignored by git and DVC
LOGS = FOLDER / "slurm"  # of jobs on a cluster
TAIL_LINES = 8
TAIL_BYTES = 16_384
# Only so that no library takes all cores while others run: how many threads a training run uses
# is its parameter `threads`, and its results do not depend on what else runs.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def log_path(name: str) -> Path:
    """Return the log of a stage, .sweep/train@….log or .sweep/studies/dvc.yaml/gain@….log."""
    return FOLDER / f"{name.replace(':', '/')}.log"


def last_lines(log: Path) -> list[str]:
    """Return the last lines of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    # A progress bar rewrites its line with \r; only what it showed last is of use.
    lines = [line.rstrip().rsplit("\r", 1)[-1] for line in text.splitlines(keepends=False)]
    return [line for line in lines if line][-TAIL_LINES:]


def environment(progress: Path) -> dict[str, str]:
    """Return the environment of a stage: `python` is the one that runs here, its memory is kept."""
    kept = allocator.keeping(os.environ)
    here = str(Path(sys.executable).parent)
    kept["PATH"] = os.pathsep.join((here, kept.get("PATH", os.defpath)))
    kept["RESABLATE_PROGRESS"] = str(progress)
    return kept


class StageProcess:
    """`dvc repro -s` of one stage, under a guard that ends it when the sweep is gone."""

    def __init__(self, name: str, *, pinned: bool, lock: int) -> None:
        """Start the stage.

        `pinned`: one thread for each library, whatever the environment says. `lock`: descriptor
        of the sweep's lock, which stays held until the guard has ended too.
        """
        self.name = name
        self.log = log_path(name)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.watch = Watch(name, self.log)
        self.watch.file.unlink(missing_ok=True)
        python = (sys.executable, "-P")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                (*python, guard.__file__, str(os.getpid()), *python, one_stage.__file__, name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(self.watch.file.absolute()) | (ONE_THREAD if pinned else {}),
                process_group=0,
                pass_fds=(lock,),
            )

    def status(self) -> int | None:
        """Return the exit status, or None while it runs."""
        status = self._process.poll()
        if status is not None:
            self.watch.file.unlink(missing_ok=True)
        return status

    def executed(self) -> bool:
        """Return whether DVC ran the command, not restored its outs from the cache."""
        return b"Running stage '" in self.log.read_bytes()

    def tail(self) -> list[str]:
        """Return the last lines of the log."""
        return last_lines(self.log)

    def ask_to_end(self) -> None:
        """Tell the guard to end the stage within guard.GRACE_S seconds."""
        if self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """Kill the whole group now."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def end_all(stages: Collection[StageProcess], signals: list[int]) -> None:
    """End the stages; a further signal, appended to `signals`, ends the patience."""
    for stage in stages:
        stage.ask_to_end()
    before = len(signals)
    deadline = time.monotonic() + guard.GRACE_S + 2
    while any(stage.status() is None for stage in stages):
        if time.monotonic() > deadline or len(signals) > before:
            break
        time.sleep(guard.POLL_S)
    for stage in stages:
        if stage.status() is None:
            stage.kill()
