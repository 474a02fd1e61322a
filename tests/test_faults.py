"""Exact resume when things go wrong: kill -9 at any moment, a full disk, damage, a dead DVC."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from resablate import paths
from resablate.files import remove_leftovers

TESTS = Path(__file__).parent
SCRIPT = TESTS / "toy_training.py"
ENVIRONMENT = os.environ | {
    "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
    "PYTHONPATH": f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}",
    "OMP_NUM_THREADS": "1",
}
SIGKILL = -signal.SIGKILL


class Server:
    """Runs toy trainings in forks of one process."""

    def __init__(self):
        self.process = subprocess.Popen(
            (sys.executable, SCRIPT, "serve"), env=ENVIRONMENT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self, root, **order):
        """Return the status and seconds of a run in `root`."""
        root.mkdir(exist_ok=True)
        self.process.stdin.write(json.dumps({"root": str(root), **order}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(10) == 0
        self.process.stdout.close()


@pytest.fixture(scope="module")
def server():
    running = Server()
    yield running
    running.close()


@pytest.fixture(scope="module")
def straight(server, tmp_path_factory):
    """The folder of a run to which nothing happened."""
    root = tmp_path_factory.mktemp("straight")
    status, _ = server.run(root)
    assert status == 0, printed(root)
    return root


def printed(root):
    return (root / "printed").read_text()


def events(root):
    return (root / "events").read_text().splitlines()


def outs(root):
    return {path: (root / path).read_bytes() for path in paths.trial()}


def assert_finishes_as(straight, server, root):
    status, _ = server.run(root)
    assert status == 0, printed(root)
    assert outs(root) == outs(straight)
    assert list((root / ".resume").iterdir()) == []
    assert [path for out in paths.trial() for path in (root / out).parent.glob(".*")] == []


def states(root):
    return list((root / ".resume").glob("*.state"))


# -- kill -9 ---------------------------------------------------------------------------------------


def test_kills_at_random_moments_leave_the_run_that_was_never_killed(server, straight, tmp_path):
    chosen = random.Random(4)
    _, seconds = server.run(tmp_path / "timed")
    killed = resumed = 0
    for number in range(20):
        root = tmp_path / str(number)
        status, _ = server.run(root, kill_after=chosen.uniform(0.05, 0.8) * seconds)
        killed += status == SIGKILL
        assert_finishes_as(straight, server, root)
        resumed += "resumed at step" in printed(root)
    # All but those that ended before the kill came, or were killed before they saved.
    assert killed > 10
    assert resumed > 5


def test_kills_while_saving_evaluating_and_writing_leave_the_same(server, straight, tmp_path):
    names, chosen = events(straight), random.Random(5)
    moments = ["evaluate"]
    for kind in ("open", "half", "written", "renamed"):
        state = next(name for name in names if name.startswith(f"{kind} ") and "state" in name)
        moments += [state, f"{kind} {chosen.choice(paths.trial()).name}"]
    for number, moment in enumerate(moments):
        root = tmp_path / str(number)
        # The name of a half-written file carries the process's id.
        at = [i for i, name in enumerate(names) if _plain(name) == _plain(moment)]
        status, _ = server.run(root, kill_at=chosen.choice(at[1:] or at))
        assert (status, _plain(events(root)[-1])) == (SIGKILL, _plain(moment))
        assert_finishes_as(straight, server, root)


def _plain(name):
    kind, _, file = name.partition(" ")
    return f"{kind} {file.removeprefix('.').removesuffix('.part').rstrip('0123456789').rstrip('.')}"


def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_kept(tmp_path):
    dead = subprocess.Popen(("true",))
    dead.wait()
    files = [tmp_path / f".out.{pid}.part" for pid in (dead.pid, os.getpid(), "x")]
    for file in files:
        file.touch()
    remove_leftovers(tmp_path / "out")
    assert [file.exists() for file in files] == [False, True, True]


# -- a full disk -----------------------------------------------------------------------------------


def test_no_room_for_the_state_is_one_line_and_loses_nothing(server, straight, tmp_path):
    half_way = [
        i
        for i, name in enumerate(events(straight))
        if name.startswith("renamed") and name.endswith(".state")
    ][5]
    server.run(tmp_path, kill_at=half_way)
    (state,) = states(tmp_path)
    before = state.read_bytes()
    status, _ = server.run(tmp_path, file_bytes=20_000)
    assert status == 1
    _, error = printed(tmp_path).splitlines()  # after `resumed at step 6 of 12`
    assert error.startswith(f"error: {state}: File too large, ")
    assert error.endswith("then run the same command again: it goes on from what was saved")
    assert state.read_bytes() == before
    assert_finishes_as(straight, server, tmp_path)
    assert "resumed at step 6 of 12" in printed(tmp_path)


@contextmanager
def small_disk(folder, size):
    """Mount a tmpfs; skip where this is not allowed."""
    folder.mkdir()
    command = ("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(("umount", "-l", folder), check=True)


@pytest.mark.parametrize("room", [60_000, 20_000])
def test_a_full_disk_is_one_line_and_the_same_command_finishes_later(
    server, straight, tmp_path, room
):
    with small_disk(tmp_path / "disk", "2m") as root:
        server.run(root, kill_at=0)  # the data are there
        (root / "ballast").write_bytes(bytes(free(root) - room))
        status, _ = server.run(root, save_seconds=60)  # only the outs are written
        assert status == 1
        assert printed(root).startswith("error: ")
        assert ": No space left on device, 0.0 MB free there; make room, " in printed(root)
        assert printed(root).count("\n") == 1
        (root / "ballast").unlink()
        assert_finishes_as(straight, server, root)


def free(folder):
    found = os.statvfs(folder)
    return found.f_bavail * found.f_bsize


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_state_is_named_set_aside_and_the_run_begins_anew(
    server, straight, tmp_path, damage
):
    server.run(tmp_path, kill_at=40)
    (state,) = states(tmp_path)
    content = bytearray(state.read_bytes())
    content[len(content) // 3] ^= 1
    state.write_bytes({"cut": content[:-100], "changed": content, "empty": b""}[damage])
    status, _ = server.run(tmp_path)
    assert status == 0
    aside = state.with_suffix(".damaged")
    assert printed(tmp_path).startswith(f"warning: {state.name} is damaged; set aside as {aside}")
    assert "resumed" not in printed(tmp_path)
    assert outs(tmp_path) == outs(straight)
    assert [path.suffix for path in (tmp_path / ".resume").iterdir()] == [".damaged"]


# -- a dead DVC ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("dvc")
    subprocess.run(("dvc", "init", "-q", "--no-scm"), cwd=root, env=ENVIRONMENT, check=True)
    return root


def start_dvc(root, cmd, shell):
    """Start `dvc repro` of one stage in a process group of its own, as a terminal does."""
    (root / "dvc.yaml").write_text(json.dumps({"stages": {"toy": {"cmd": cmd}}}))
    return subprocess.Popen(
        ("dvc", "repro", "-q", "toy"), cwd=root, env=ENVIRONMENT | {"SHELL": shell},
        process_group=0, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ended(process):
    """Tell whether a process has ended, be it that nobody has asked for its status yet."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("cmd", "shell", "delay"),
    [
        ("{run}", "/bin/bash", 0),  # the shell becomes the run
        ("{run} && true", "/bin/sh", 0),  # the shell stays between
        ("{run}", "/bin/sh", 2),  # DVC dies before the run watches it
    ],
)
def test_a_killed_dvc_leaves_no_training(repository, tmp_path, cmd, shell, delay):
    file, started = tmp_path / "watching", tmp_path / "watching-started"
    run = f"PYTHONDONTWRITEBYTECODE=1 python {SCRIPT} wait {file} {delay}"
    dvc = start_dvc(repository, cmd.format(run=run), shell)
    wait_for(lambda: (started if delay else file).exists() and started.read_text())
    training = psutil.Process(int(started.read_text()))
    dvc.kill()
    dvc.wait()
    wait_for(lambda: ended(training))
    assert file.exists() == (delay == 0)


def test_a_living_dvc_is_no_reason_to_end(repository, straight, tmp_path):
    cmd = f"cd {tmp_path} && PYTHONDONTWRITEBYTECODE=1 python {SCRIPT} train && true"
    assert start_dvc(repository, cmd, "/bin/sh").wait(60) == 0
    assert outs(tmp_path) == outs(straight)
