"""A toy run in a process of its own, to be killed and starved.

    python toy_training.py train             the run, in the current folder
    python toy_training.py wait FILE MINUTES as a stage does: watch DVC, touch FILE, then wait
    python toy_training.py serve             a run for each JSON line of stdin, see `Order`

`serve` imports PyTorch once and forks: a run costs a tenth of a second.
"""

import json
import os
import resource
import signal
import sys
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from resablate import files, parent, paths, runs, train
from resablate.errors import run_command
from toys import toy_run, toy_tokens


class Order(TypedDict, total=False):
    """How to run: where, and what shall happen to the run."""

    root: str  # its folder; what it prints goes to `printed` there, its events to `events`
    kill_after: float  # seconds, then kill -9
    kill_at: int  # the number of the event at which it kills itself
    file_bytes: int  # no file can be larger
    save_seconds: float  # between states; 0 unless given


def toy() -> None:
    """Train a toy run; the state is saved after every update."""
    run = toy_run(eval_interval=4)
    runs.execute("toy", run, 3, toy_tokens(Path("tokens")), paths.trial())


class Events:
    """Names each moment of writing a file and each evaluation; kills the process at one of them.

    The log stays open until the end, which may be a kill.
    """

    def __init__(self, kill_at: int | None) -> None:
        self.kill_at, self.names = kill_at, []
        self.log = Path("events").open("w")  # noqa: SIM115
        whole, write, evaluate = files.whole, Path.write_bytes, train.Trainer.evaluate

        @contextmanager
        def noted_whole(path):
            self.note(f"open {path.name}")
            with whole(path) as temporary:
                yield temporary
                self.note(f"written {path.name}")
            self.note(f"renamed {path.name}")

        def noted_write(path, content):
            write(path, content[: len(content) // 2])
            self.note(f"half {path.name}")
            return write(path, content)

        def noted_evaluate(trainer):
            self.note("evaluate")
            return evaluate(trainer)

        files.whole, Path.write_bytes = noted_whole, noted_write
        train.Trainer.evaluate = noted_evaluate

    def note(self, name: str) -> None:
        self.log.write(f"{name}\n")
        self.log.flush()
        if self.kill_at is not None and len(self.names) == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.names.append(name)


def child(order: Order) -> None:
    """Do an order; never returns."""
    status = 1
    try:
        os.chdir(order["root"])
        printed = os.open("printed", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        train.SAVE_SECONDS = order.get("save_seconds", 0.0)
        toy_tokens(Path("tokens"))  # the data are there before the disk is full
        Events(order.get("kill_at"))
        if limit := order.get("file_bytes"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        run_command(toy)
        status = 0
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    """Run each order in a fork; answer with its status (negative: the signal) and seconds."""
    for line in sys.stdin:
        order, began = json.loads(line), time.monotonic()
        pid = os.fork()
        if pid == 0:
            child(order)
        if "kill_after" in order:
            time.sleep(order["kill_after"])
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps([status, time.monotonic() - began]), flush=True)


def wait(file: str, delay: str) -> None:
    """Touch `file`-started; after `delay` seconds begin to watch, touch `file`, and wait."""
    Path(f"{file}-started").write_text(str(os.getpid()))
    time.sleep(float(delay))
    parent.end_with_dvc()
    Path(file).touch()
    time.sleep(60)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    {"train": toy, "serve": serve, "wait": wait}[command](*arguments)
