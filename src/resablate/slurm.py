"""Cells of a sweep as Slurm jobs, through submitit: python -m resablate.sweep --slurm

Each cell gets a clone of the working copy as it stands, and runs `dvc repro -s` there. Its outs go
into the cache that all clones share, and the sweep takes them from there by DVC's run-cache, as if
they had been made here. The clones lie below .dvc/tmp/exps, where `paths.main_root` finds the main
working copy: a cell that is preempted and starts again, here or on another node, goes on from the
state that it saved there. All this needs one file system that the nodes share.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import submitit
from submitit.helpers import Checkpointable

from resablate import guard, one_stage, pipeline
from resablate.display import Watch, progress_of, read_json
from resablate.errors import UserError
from resablate.files import write_bytes, write_text
from resablate.paths import ENVIRONMENTS
from resablate.stage_process import LOGS, ONE_THREAD, environment, last_lines

CLONES = Path(".dvc/tmp/exps/slurm")
POLL_S = 2.0  # between questions to the controller, which serves others too
SETTLE_S = 2.0  # a signal to the whole job may reach the stage before it reaches us
TRIES = 3  # of a job that ends without a word: its node has died, or its preemption killed it
TIMEOUTS = 1000  # after each, submitit requeues the job, which goes on
DVC_FAILED = 255  # DVC's exit status; between 128 and it lie those of signals
CANCEL_S = 60  # Slurm's own time between SIGTERM and SIGKILL is 30 s
DEFAULTS = {"timeout_min": 60, "cpus_per_task": 1}


class Cell(Checkpointable):
    """What a job does; submitit calls it again, on whatever node, after a requeue."""

    def __init__(self, root: Path, name: str, inputs: list[str]) -> None:
        """Take the main working copy, the stage, and what it needs from DVC's cache."""
        self.root, self.name, self.inputs = root, name, inputs
        self.records = _records(clone_of(root, name))  # those that are not this cell's

    def __call__(self) -> None:
        """Run the stage in its clone and note its exit status; a job that is told to end does not.

        Without a status the sweep submits the job again, if Slurm has not requeued it.
        """
        told: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
        began = time.monotonic()
        clone = clone_of(self.root, self.name)
        # Of a process that a preemption has killed, perhaps on another node: its locks.
        shutil.rmtree(clone / ".dvc/tmp", ignore_errors=True)
        with (self.root / log_of(self.name)).open("ab") as log:
            dvc = ("-m", "dvc", "checkout")
            status = self._python(clone, log, *dvc, *self.inputs) if self.inputs else 0
            status = status or self._python(clone, log, one_stage.__file__, self.name)
        if status:
            time.sleep(SETTLE_S)
        if told or status < 0 or 128 < status < DVC_FAILED:
            raise SystemExit(f"ended by a signal; exit status {status}")
        for path, content in _records(clone).items():
            if self.records.get(path) != content:
                write_bytes(self.root / path, content)
        verdict = {"status": status, "seconds": time.monotonic() - began}
        write_text(_status(self.root, self.name), json.dumps(verdict) + "\n")

    def _python(self, clone: Path, log: Any, *arguments: str) -> int:
        """Run Python under a guard, which ends it with all that it started when this job ends."""
        python = (sys.executable, "-P")
        threads = {"OMP_NUM_THREADS": os.environ.get("SLURM_CPUS_PER_TASK", "1")}
        progress = progress_of(self.root / log_of(self.name))
        process = subprocess.Popen(
            (*python, guard.__file__, str(os.getpid()), *python, *arguments),
            cwd=clone, env=environment(progress) | ONE_THREAD | threads,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0,
        )  # fmt: skip
        try:
            return process.wait()
        finally:
            if process.poll() is None:  # a time limit has come, as an exception
                process.terminate()
                process.wait()


def log_of(name: str) -> Path:
    """Return the log of a cell's jobs."""
    return LOGS / f"{name.replace(':', '/')}.log"


def clone_of(root: Path, name: str) -> Path:
    """Return the folder of a cell's clone."""
    return root / CLONES / name.replace(":", "/")


def _status(root: Path, name: str) -> Path:
    clone = clone_of(root, name)
    return clone.with_name(f"{clone.name}.status.json")


def _records(clone: Path) -> dict[Path, bytes]:
    """Return the environment records of a clone, by their path in any working copy."""
    found = (path for path in (clone / ENVIRONMENTS).rglob("*.json") if path.is_file())
    return {path.relative_to(clone): path.read_bytes() for path in found}


def make_clone(root: Path, name: str, cache: str) -> None:
    """Write a cell's clone: the commit, the files as they stand now, the cache that is shared."""
    clone = clone_of(root, name)
    shutil.rmtree(clone, ignore_errors=True)
    clone.parent.mkdir(parents=True, exist_ok=True)
    _git(root, "clone", "--quiet", "--shared", "--no-checkout", str(root), str(clone))
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for file in filter(None, listed.split("\0")):
        if (root / file).is_file():
            (clone / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / file, clone / file)
    write_text(clone / ".dvc/config.local", f"[cache]\n    dir = {cache}\n")
    _status(root, name).unlink(missing_ok=True)


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ("git", *arguments), cwd=root, capture_output=True, text=True, check=True
        )
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        raise UserError(f"--slurm needs git and a git repository: {detail}") from None
    return done.stdout


class Job:
    """A cell on its way through the queue."""

    def __init__(self, cell: Cell, number: str) -> None:
        self.cell, self.number, self.tries = cell, number, 1
        self.name, self.log = cell.name, log_of(cell.name)
        self.state, self._restarts = "PENDING", 0
        self.watch = Watch(cell.name, self.log)

    def tail(self) -> list[str]:
        """Return the last lines of its log."""
        return last_lines(self.log)

    def note(self, state: str, restarts: int, say: Callable[[str], None]) -> None:
        """Take Slurm's word for where the job is, and how often it was requeued."""
        if restarts > self._restarts:
            say(f"{self.name} was requeued by Slurm; it will go on where it was saved")
        if self.state == "PENDING" != state:
            self.watch = Watch(self.name, self.log)
            say(f"{self.name} started as Slurm's job {self.number}")
        self.state, self._restarts = state, restarts

    def submitted_again(self, number: str) -> None:
        """Begin anew, as another job."""
        self.number, self.state, self._restarts = number, "PENDING", 0
        self.tries += 1


class Cluster:
    """The jobs of one sweep."""

    def __init__(self, options: dict[str, Any]) -> None:
        """Take submitit's parameters; end the jobs that a killed sweep has left behind."""
        self._jobs: dict[str, Job] = {}
        self._root = Path.cwd()
        self._asked = time.monotonic()
        # The same for every sweep of this working copy, and for no other.
        self._name = f"resablate-{hashlib.sha256(str(self._root).encode()).hexdigest()[:12]}"
        LOGS.mkdir(parents=True, exist_ok=True)
        LOGS.chmod(0o700)  # submitit keeps pickles there, which its jobs trust
        shutil.rmtree(LOGS / "jobs", ignore_errors=True)
        try:
            self._executor = submitit.AutoExecutor(
                LOGS / "jobs", cluster="slurm", slurm_max_num_timeout=TIMEOUTS
            )
            self._executor.update_parameters(**DEFAULTS | options | {"name": self._name})
        except (RuntimeError, NameError, ValueError, TypeError, AssertionError) as error:
            raise UserError(f"--slurm: {error}") from None
        if not self.cancel():
            raise UserError("jobs of an earlier sweep are still ending; see squeue, then try again")

    def submit(self, names: Collection[str]) -> dict[str, Job]:
        """Make a clone for each cell among the stages and hand it to Slurm; return the jobs."""
        cells = pipeline.cells(names)
        for name, inputs in cells.inputs.items():
            make_clone(self._root, name, cells.cache)
            log_of(name).parent.mkdir(parents=True, exist_ok=True)
            log_of(name).write_bytes(b"")
            cell = Cell(self._root, name, inputs)
            self._jobs[name] = Job(cell, self._submit(cell))
        return self._jobs

    def _submit(self, cell: Cell) -> str:
        """Return the number of a new job."""
        try:
            return self._executor.submit(cell).job_id
        except submitit.core.utils.FailedJobError as error:
            raise UserError(f"--slurm: {error}") from None

    def ended(self, say: Callable[[str], None]) -> list[tuple[Job, float | None]]:
        """Return the jobs that have ended since last asked: seconds, or None for a failed one."""
        if time.monotonic() - self._asked < POLL_S:
            return []
        self._asked = time.monotonic()
        states = self._states()
        if states is None:  # the controller is silent for a while
            return []
        found = []
        for job in list(self._jobs.values()):
            if job.number in states:
                job.note(*states[job.number], say)
            elif (verdict := read_json(_status(self._root, job.name))) or job.tries == TRIES:
                del self._jobs[job.name]
                shutil.rmtree(clone_of(self._root, job.name), ignore_errors=True)
                found.append((job, verdict["seconds"] if verdict.get("status") == 0 else None))
            else:
                before = job.number
                job.submitted_again(self._submit(job.cell))
                say(
                    f"{job.name}: job {before} was ended from outside; job {job.number} goes on"
                    f" where it was saved, try {job.tries} of {TRIES}"
                )
        return found

    def _states(self) -> dict[str, tuple[str, int]] | None:
        """Return state and requeues of each job that is not over; None if Slurm is silent."""
        columns = "JobID:20,State:20,RestartCnt:20"
        command = ("squeue", "--noheader", f"--name={self._name}", f"--Format={columns}")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return None
        rows = map(str.split, done.stdout.splitlines())
        return {number: (state, int(restarts)) for number, state, restarts in rows}

    def cancel(self) -> bool:
        """End all jobs of this working copy; return whether they are over, after CANCEL_S at most.

        Two jobs of one cell at once would write the same state.
        """
        deadline = time.monotonic() + CANCEL_S
        while self._states():
            if time.monotonic() > deadline:
                return False
            subprocess.run(("scancel", f"--name={self._name}"), capture_output=True, check=False)
            time.sleep(guard.POLL_S)
        return True
