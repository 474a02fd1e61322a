"""Run the stale stages of a pipeline side by side: what `make repro` does.

    python -m resablate.sweep [-j JOBS] [--slurm] [--pipeline dvc.yaml] [TARGET ...]

Leaves what a sequential `dvc repro` leaves, dvc.lock included, byte for byte. Stages are run by
`dvc repro -s`, as soon as nothing that they need is stale; a failed one stops only those that
need it. `-s` looks at no other stage, so several run at once without being "busy" for each other.
"""

import argparse
import fcntl
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

import psutil

from resablate import commandline, params, pipeline
from resablate.display import Display, Times, clock, describe, expectations, recorded_seconds
from resablate.errors import UserError
from resablate.files import CLOSED, FULL
from resablate.slurm import Cluster, Job
from resablate.stage_process import FOLDER, LOGS, StageProcess, end_all
from resablate.verdict import verdict

TICK_S = 0.1
LOCK = Path(".dvc/tmp/sweep.lock")
EXAMPLES = """\
examples:
  python -m resablate.sweep                         the root pipeline, a stage a core
  python -m resablate.sweep -j 1                    one stage after the other
  python -m resablate.sweep 'train@*-1337'          all cells of one seed, and what they need
  python -m resablate.sweep --pipeline studies/dvc.yaml
  python -m resablate.sweep --slurm --option slurm_partition=gpu --option gpus_per_node=1

Ctrl-C ends it; the same command continues. Logs are in .sweep/, one a stage."""
T = TypeVar("T")


class InterruptError(Exception):
    """SIGINT or SIGTERM has come; the only argument is its number."""


class Sweep:
    """What has run, what runs, and what is left of one pipeline."""

    def __init__(
        self,
        file: Path,
        targets: list[str],
        jobs: int,
        lock: int,
        cluster: Cluster | None = None,
    ) -> None:
        """`lock`: descriptor of the sweep's lock. `cluster`: where cells run; None: here."""
        self._file, self._targets, self._jobs, self._lock = file, targets, jobs, lock
        self._cluster = cluster
        self._display = Display()
        self._times = Times(FOLDER / "times.json", recorded_seconds())
        self._signals: list[int] = []
        self._announced: set[str] = set()
        self._running: list[StageProcess] = []
        self._done: list[str] = []
        self._failed: dict[str, StageProcess | Job] = {}

    def run(self) -> None:
        """Bring the pipeline up to date. Exits with 1 after a failure, 128 + n after signal n."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: self._signals.append(number))
        try:
            plan = self._plan()
            while ready := self._ready(plan):
                self._side_by_side(ready, plan)
                plan = self._plan()
            for file in plan.files:
                self._patiently(pipeline.order_lock, file)
        except InterruptError as interrupt:
            end_all(self._running, self._signals)
            self._report_interrupt(*interrupt.args)
        if self._failed:
            self._report_failures(plan)
            sys.exit(1)
        self._report(plan)

    def _patiently(self, function: Callable[..., T], *args: object) -> T:
        """Call a function of `pipeline`, and again while another DVC process is in the way."""
        told = False
        while True:
            try:
                return function(*args)
            except pipeline.BusyError:
                if not told:
                    self._display.event("another DVC process is at work here; waiting for it")
                told = True
            self._pause()

    def _pause(self) -> None:
        time.sleep(TICK_S)
        if self._signals:
            raise InterruptError(self._signals[0])

    def _plan(self) -> pipeline.Plan:
        """Ask DVC what is stale now; say what has not been said yet."""
        known = {*self._done, *self._failed}
        plan = self._patiently(pipeline.plan, self._file, self._targets, known)
        new = plan.stale - self._announced
        if new and not self._announced:
            left = self._times.left(plan.stale, [], self._jobs)
            estimate = "" if left is None else f"; about {clock(left)} by earlier times"
            self._display.event(
                f"{self._file}: {len(new)} of {len(plan.names)} stages are stale;"
                f" up to {self._jobs} at once{estimate}"
            )
        elif new:
            self._display.event(f"{len(new)} more are stale now: {_listed(plan, new)}")
        self._announced |= new
        return plan

    def _ready(self, plan: pipeline.Plan) -> list[str]:
        """Return the stale stages that need no stale or failed one."""
        blocking = plan.stale | self._failed.keys()
        return [
            name for name in plan.names if name in plan.stale and not plan.above[name] & blocking
        ]

    def _side_by_side(self, ready: list[str], plan: pipeline.Plan) -> None:
        """Run stages, none of which needs another, `jobs` at once and the rest on the cluster.

        What a job has made is in DVC's cache: running the cell here takes it from there.
        """
        away = self._submit(ready)
        waiting = [name for name in ready if name not in away]
        later = [name for name in plan.stale if name not in ready]
        while waiting or self._running or away:
            while waiting and len(self._running) < self._jobs:
                name = waiting.pop(0)
                self._display.event(f"{name} started")
                stage = StageProcess(name, pinned=self._jobs > 1, lock=self._lock)
                self._running.append(stage)
            self._pause()
            for stage in [stage for stage in self._running if stage.status() is not None]:
                self._running.remove(stage)
                self._finish(stage)
            waiting += self._returned(away)
            if self._display.due():
                self._show([*waiting, *later], away)

    def _submit(self, ready: list[str]) -> dict[str, Job]:
        """Hand cells to the cluster, if there is one; return the jobs that have not ended yet."""
        if self._cluster is None:
            return {}
        jobs = self._patiently(self._cluster.submit, ready)
        if jobs:
            self._display.event(f"{len(jobs)} cells handed to Slurm; logs are in {LOGS}")
        return jobs

    def _returned(self, away: dict[str, Job]) -> list[str]:
        """Return the cells whose jobs have ended well, and book those that failed."""
        if not away:
            return []
        back = []
        for job, seconds in self._cluster.ended(self._display.event):
            if seconds is None:
                self._failed[job.name] = job
                self._display.event(f"{job.name} FAILED on Slurm; see {job.log}, {LOGS}/jobs")
            else:
                self._times.record(job.name, seconds)
                self._display.event(f"{job.name} finished on Slurm in {clock(seconds)}")
                back.append(job.name)
        return back

    def _finish(self, stage: StageProcess) -> None:
        """Book a stage that has ended."""
        seconds = stage.watch.seconds
        if stage.status():
            stage.kill()  # the guard's group, in case that the guard itself was killed
            self._failed[stage.name] = stage
            self._display.event(f"{stage.name} FAILED after {clock(seconds)}; see {stage.log}")
        elif stage.executed():
            self._done.append(stage.name)
            self._times.record(stage.name, seconds)
            self._display.event(f"{stage.name} finished in {clock(seconds)}")
        else:
            self._done.append(stage.name)
            self._display.event(f"{stage.name} restored from DVC's cache")

    def _show(self, waiting: list[str], away: dict[str, Job]) -> None:
        queued = [name for name, job in away.items() if job.state != "RUNNING"]
        waiting = waiting + queued
        running = [job.watch.look() for name, job in away.items() if name not in queued]
        running += [stage.watch.look() for stage in self._running]
        left = self._times.left(waiting, running, self._jobs)
        counts = (
            f"{len(self._done)} done, {len(running)} running, {len(waiting)} left,"
            f" {len(self._failed)} failed"
        )
        estimate = "" if left is None else f", about {clock(left)} to go"
        self._display.status(" | ".join((counts + estimate, *map(describe, running))))

    def _report_interrupt(self, number: int) -> NoReturn:
        """Say how to continue; exit as a shell reports a process that the signal ended."""
        again = shlex.join(("python", *sys.orig_argv[1:]))
        name = signal.Signals(number).name
        self._display.event(f"ended by {name}; finished stages are kept; continue with: {again}")
        sys.exit(128 + number)

    def _report_failures(self, plan: pipeline.Plan) -> None:
        """Name what failed, the end of its log, and what did not run because of it."""
        for name, stage in self._failed.items():
            self._display.line(f"\n{name} failed; {stage.log} ends with")
            for line in stage.tail():
                self._display.line(f"    {line}")
        skipped = {n for n in plan.names if n in plan.stale or plan.above[n] & self._failed.keys()}
        self._display.line("")
        if skipped:
            self._display.event(f"not run, for they need what failed: {_listed(plan, skipped)}")
        self._display.event(
            f"{len(self._done)} done, {len(self._failed)} failed: {_listed(plan, self._failed)}"
        )

    def _report(self, plan: pipeline.Plan) -> None:
        """Say where the results are and what is in them."""
        self._display.event(f"all {len(plan.names)} stages are current; {len(self._done)} ran")
        if plan.results:
            self._display.line(f"results: {', '.join(plan.results)}")
        for path in map(Path, plan.results):
            if path.name == "summary.json":
                for line in expectations(path):
                    self._display.line(line)
        for line in ("", *verdict(self._file)):
            self._display.line(line)


def _listed(plan: pipeline.Plan, names: set[str] | dict[str, StageProcess]) -> str:
    return ", ".join(name for name in plan.names if name in names)


@contextmanager
def only_sweep() -> Iterator[int]:
    """Hold the repository's sweep lock, and yield its descriptor; UserError if it is taken."""
    if not Path(".dvc").is_dir():
        raise UserError("no .dvc here; run from the repository's root")
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                "another sweep runs in this repository, or is still ending; wait for it or end it"
            ) from None
        yield file.fileno()


def available_cores() -> int:
    """Return how many physical cores this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(allowed or 1, psutil.cpu_count(logical=False) or allowed or 1))


def _option(text: str) -> tuple[str, str | int]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r}: must be KEY=VALUE")
    return key, int(value) if value.isascii() and value.isdecimal() else value


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Run a pipeline's stale stages side by side; leave what `dvc repro` leaves."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="stage, group or pattern")
    parser.add_argument(
        "-j", "--jobs", type=commandline.count, help="stages at once (default: physical cores)"
    )
    parser.add_argument("--slurm", action="store_true", help="run cells as Slurm jobs (submitit)")
    parser.add_argument(
        "--option", type=_option, action="append", default=[], metavar="KEY=VALUE",
        help="of jobs, by submitit's names: timeout_min, mem_gb, slurm_partition, ...",
    )  # fmt: skip
    parser.add_argument(
        "--pipeline", type=Path, default=Path("dvc.yaml"), metavar="FILE", help="(dvc.yaml)"
    )


def main(arguments: argparse.Namespace) -> None:
    """Check params.yaml before anything is deleted or computed; then run."""
    if arguments.option and not arguments.slurm:
        raise UserError("--option is for jobs of --slurm")
    params.load()
    with only_sweep() as lock, _cluster(arguments) as cluster:
        jobs = arguments.jobs or available_cores()
        try:
            Sweep(arguments.pipeline, arguments.targets, jobs, lock, cluster).run()
        except OSError as error:  # its own logs; stages have their own disks and folders
            if error.errno not in (*CLOSED, *FULL):
                raise
            raise UserError(
                f"{error.filename or FOLDER}: {error.strerror}; mend that, then run the same"
                " command again"
            ) from None


@contextmanager
def _cluster(arguments: argparse.Namespace) -> Iterator[Cluster | None]:
    """Yield the cluster that was asked for; end its jobs whatever happens."""
    if not arguments.slurm:
        yield None
        return
    cluster = Cluster(dict(arguments.option))
    try:
        yield cluster
    finally:
        cluster.cancel()


def command(arguments: list[str]) -> None:
    """Do what python -m resablate.sweep is asked."""
    parser = commandline.Parser(prog="python -m resablate.sweep")
    configure(parser)
    main(parser.parse_args(arguments))


if __name__ == "__main__":
    commandline.run_command(command, sys.argv[1:])
