"""Run one command, and end it with all that it started when told to or when the parent is gone.

    python guard.py PARENT_PID COMMAND [ARGUMENT ...]

The sweep puts a guard around each stage, as the leader of a process group of its own. A kill -9
of the sweep reaches nobody else; the guard notices that its parent has changed, and leaves no
orphan behind. Run by its path: it imports nothing of the package.
"""

import os
import signal
import subprocess
import sys
import time

import psutil

POLL_S = 0.1
GRACE_S = 8.0  # from the polite request to the kill


def end(command: psutil.Popen) -> None:
    """Ask all descendants of the command to end; kill the whole group after GRACE_S.

    The command itself is `dvc`, and is not signalled: a signal could cut it short in the middle
    of writing dvc.lock. It returns by itself as soon as what it runs has ended.
    """
    asked: set[psutil.Process] = set()
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline:
        try:
            found = set(command.children(recursive=True))
        except psutil.NoSuchProcess:
            found = set()
        for process in found - asked:
            try:
                process.terminate()
            except psutil.NoSuchProcess:
                continue
        asked |= found
        if command.poll() is not None and not psutil.wait_procs(asked, timeout=0)[1]:
            break
        time.sleep(POLL_S)
    os.killpg(0, signal.SIGKILL)  # whoever is left in the group, this process included


def main(parent: int, arguments: list[str]) -> int:
    """Return the command's exit status (128 + signal where a signal ended it)."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    command = psutil.Popen(arguments, stdin=subprocess.DEVNULL)
    while command.poll() is None:
        if told or os.getppid() != parent:
            end(command)
        time.sleep(POLL_S)
    return command.returncode if command.returncode >= 0 else 128 - command.returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
