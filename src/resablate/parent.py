"""End with DVC: a `dvc repro` that is killed, even by kill -9, must leave no training behind.

DVC runs a command through a shell, which may stay between the two. Linux's PR_SET_PDEATHSIG would
see only the shell end, and nothing of a death before it is set: importing PyTorch takes seconds.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

POLL_SECONDS = 0.5
VARIABLE = "DVC_STAGE"  # DVC sets it for the commands that it runs


def line() -> list[int]:
    """Return the ids of this process's parents, from the nearest up to DVC (Linux).

    DVC is the first without DVC's variable for this stage. Elsewhere: the nearest parent only.
    """
    mark = f"{VARIABLE}={os.environ[VARIABLE]}".encode()
    found = [os.getppid()]
    while True:
        folder = Path(f"/proc/{found[-1]}")
        try:
            if mark not in (folder / "environ").read_bytes().split(b"\0"):
                return found
            found.append(int((folder / "stat").read_text().rpartition(")")[2].split()[1]))
        except OSError:  # gone, another user's, or no Linux
            return found


def end_with_dvc() -> None:
    """Watch, in a thread, the processes between DVC and this one; end this one when they change.

    Does nothing where no DVC is: a run started by hand may outlive its terminal.
    """
    if VARIABLE not in os.environ:
        return
    parents = line()
    if _group(parents[-1]) != os.getpgrp():  # DVC's commands are in its group: it has died before
        sys.exit("error: DVC has ended; so does this run")

    def watch() -> None:
        while line() == parents:
            time.sleep(POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _group(pid: int) -> int:
    """Return a process's group; 0 for one that is gone or in another PID namespace."""
    try:
        return os.getpgid(pid) if pid else 0
    except OSError:
        return 0
