"""A sweep when things go wrong around it: one clear line; the same command finishes the work."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from test_faults import free, small_disk
from toy import ENVIRONMENT, Toy

ROOT = Path(__file__).parent.parent
DAY = 24 * 3600


@pytest.fixture(scope="module")
def sequential(tmp_path_factory):
    """A repository in which a sequential `dvc repro` has run everything."""
    toy = Toy.create(tmp_path_factory.mktemp("toy") / "sequential")
    toy.dvc("repro")
    toy.events()
    return toy


@pytest.fixture
def toy(sequential, tmp_path):
    toy = sequential.copy(tmp_path / "toy")
    yield toy
    for process in toy.processes():  # of a test that has failed half-way
        with suppress(psutil.Error):
            process.kill()


def forget(toy, cell):
    """Let a cell's outcome be neither here nor in the cache."""
    out = toy.root / f"metrics/runs/{cell}"
    shutil.rmtree(toy.root / ".dvc/cache/runs")
    shutil.rmtree(cached_copy(toy.root / ".dvc/cache", out).parent)
    out.unlink()


def cached_copy(cache, out):
    """Return the object of a cache that holds an out."""
    files = (path for path in (cache / "files").rglob("*") if path.is_file())
    (found,) = (path for path in files if path.read_bytes() == out.read_bytes())
    return found


def assert_finishes(toy, sequential):
    toy.sweep("-j", "2")
    assert toy.lock.read_bytes() == sequential.lock.read_bytes()


def test_a_full_cache_disk(toy, sequential, tmp_path):
    with small_disk(tmp_path / "disk", "1m") as disk:
        forget(toy, "nanogpt")
        shutil.copytree(toy.root / ".dvc/cache/files", disk / "files")
        toy.dvc("config", "--local", "cache.dir", str(disk))
        (disk / "ballast").write_bytes(bytes(free(disk)))
        printed = toy.sweep("train", status=1)
        assert "train@nanogpt failed; .sweep/train@nanogpt.log ends with" in printed
        assert "No space left on device" in printed
        (disk / "ballast").unlink()
        assert_finishes(toy, sequential)


def test_a_damaged_object_in_the_cache(toy, sequential):
    out = toy.root / "metrics/runs/nanogpt"
    cached = cached_copy(toy.root / ".dvc/cache", out)
    cached.chmod(0o644)
    cached.write_bytes(b"damage")
    out.unlink()
    assert_finishes(toy, sequential)
    assert toy.began() == ["nanogpt"]
    assert cached.read_bytes() == out.read_bytes()


def test_a_killed_training(toy, sequential):
    forget(toy, "nanogpt")
    toy.tell("wait-nanogpt", "never")
    sweep = toy.start("train")
    toy.wait_for("began-nanogpt")
    (training,) = (p for p in toy.processes() if p.cmdline()[1:3] == ["stage.py", "nanogpt"])
    training.kill()
    printed, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 1
    # The first where the shell gave its place to the training, the second where it waited for it.
    ended = f"exited with {-signal.SIGKILL}", f"exited with {128 + signal.SIGKILL}"
    assert any(line in printed for line in ended)
    (toy.side / "wait-nanogpt").unlink()
    assert_finishes(toy, sequential)


def test_locks_of_dead_processes(toy, sequential):
    forget(toy, "nanogpt")
    dead = subprocess.Popen(("true",))
    dead.wait()
    info = {"pid": dead.pid, "cmd": "dvc repro -s train@nanogpt"}
    out = str(toy.root / "metrics/runs/nanogpt")
    tmp = toy.root / ".dvc/tmp"
    (tmp / "rwlock").write_text(json.dumps({"write": {out: info}, "read": {}}))
    (tmp / "lock").write_text(f"{dead.pid:>11}\n")
    (tmp / "sweep.lock").write_text(str(dead.pid))
    assert_finishes(toy, sequential)
    assert toy.began() == ["nanogpt"]


def test_a_clock_that_is_wrong(toy, sequential):
    for number, path in enumerate(toy.root.rglob("*")):
        if path.is_file() and ".git" not in path.parts:
            then = time.time() + (30 * DAY if number % 2 else -4000 * DAY)
            os.utime(path, (then, then))
    assert "0 ran" in toy.sweep()
    (toy.root / "metrics/runs/nanogpt").unlink()
    assert_finishes(toy, sequential)
    assert toy.began() == []


@pytest.mark.parametrize("folder", ["metrics/runs", ".dvc/cache/files/md5", ".sweep"])
def test_a_folder_that_cannot_be_written_to(toy, sequential, folder):
    """Root is asked for permission too once it has lost the right to override it."""
    forget(toy, "nanogpt")
    path = toy.root / folder
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o555)
    drop = ("setpriv", "--bounding-set=-dac_override") if os.geteuid() == 0 else ()
    command = (*drop, sys.executable, "-m", "resablate.sweep", "train")
    done = subprocess.run(
        command, cwd=toy.root, env=ENVIRONMENT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "Permission denied" in done.stdout + done.stderr
    assert folder in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    path.chmod(0o755)
    assert_finishes(toy, sequential)


def test_each_row_of_the_readme_is_a_test():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = readme.split("<!-- faults: begin -->")[1].split("<!-- faults: end -->")[0]
    named = re.findall(r"`(test_\w+)`", rows)
    assert len(named) == len(rows.strip().splitlines()) - 2
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    for name in named:
        assert f"def {name}(" in tests, name
