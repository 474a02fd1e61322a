"""Where and how the repository may lie: odd folders, another user's, old tools, no git."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from resablate import snapshot
from resablate.errors import UserError
from resablate.verdict import verdict
from toy import ENVIRONMENT, Toy

ROOT = Path(__file__).parent.parent
NOBODY = 65534
# DVC's own use of pygtrie.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")
WRITE = """\
import os, sys
from pathlib import Path
from resablate.errors import run_command
from resablate.files import write_text
if os.geteuid() == 0:  # whom no permission stops
    os.seteuid(65534)
run_command(write_text, Path(sys.argv[1]), "text")
"""


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this repository's Makefile in a folder."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        # Under `make test` this make is a nested one, which would tell its folder.
        ("make", "--no-print-directory", *arguments), cwd=folder, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def skeleton(tmp_path):
    """The Makefile under a name with spaces, an accent and a quote, with nothing to install."""
    if not shutil.which("make"):
        pytest.skip("needs make")
    folder = tmp_path / "thèse d'Ana" / "re sablate"
    (folder / "src/resablate").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("requirements.lock", "requirements-numerics.lock", "src/resablate/__init__.py"):
        (folder / name).touch()
    where = "import sys, resablate\nprint('ran', sys.prefix, resablate.__file__)\n"
    (folder / "src/resablate/sweep.py").write_text(where)
    return folder


def test_make_works_under_a_name_with_spaces_and_accents(skeleton):
    done = make(skeleton, f"PYTHON={sys.executable}", "repro")
    assert done.returncode == 0, done.stderr
    expected = f"ran {skeleton}/.venv {skeleton}/src/resablate/__init__.py\n"
    assert done.stdout.endswith(expected)
    script = "source .venv/bin/activate && cd / && python -m resablate.sweep"
    activated = subprocess.run(
        ("bash", "-c", script), cwd=skeleton, env={"PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert activated.stdout == expected, activated.stderr


def test_an_old_python_is_refused_before_anything_is_installed(skeleton):
    old = skeleton / "old"
    code = "import sys; sys.version_info = (3, 9, 18); exec(sys.argv[2])"
    old.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n')
    old.chmod(0o755)
    done = make(skeleton, "PYTHON=./old", "repro")
    assert done.returncode == 2
    assert "error: ./old is Python 3.9; resablate needs 3.11 or newer: make PYTHON=" in done.stderr
    assert not (skeleton / ".venv").exists()


def test_a_folder_that_may_not_be_written_to_is_one_line(tmp_path):
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed").chmod(0o555)
    for folder in (tmp_path, *tmp_path.parents):  # so that another user can reach it
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    for path in ("closed/file", "closed/new/file"):
        done = subprocess.run(
            (sys.executable, "-c", WRITE, str(tmp_path / path)),
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: {tmp_path}/closed")
        assert "Permission denied; make its folder writable for you" in done.stderr
        assert done.stderr.count("\n") == 1


def one_line(folder: Path, *arguments: str) -> str:
    """Return the line in which a command refuses to work in a folder."""
    done = subprocess.run(
        (sys.executable, "-m", "resablate", *arguments), cwd=folder, env=ENVIRONMENT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


# -- git -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def committed(tmp_path_factory):
    """A repository of the toy pipeline, run and committed twice."""
    toy = Toy.create(tmp_path_factory.mktemp("toy") / "é à")
    toy.dvc("repro", "trial")
    toy.run("git", "config", "user.name", "t")
    toy.run("git", "config", "user.email", "t@example.org")
    for message in ("one", "two"):
        toy.run("git", "add", "-A")
        toy.run("git", "commit", "-q", "--allow-empty", "-m", message)
    return toy


def test_a_sweep_works_in_a_git_worktree(committed):
    # One level deep, so that the toy's stages find the folder `side` beside it.
    other = Toy(committed.root.parent)
    other.root = committed.root.parent / "work tree"
    committed.run("git", "worktree", "add", "-q", "-b", "other", str(other.root))
    assert "all 3 stages are current" in other.sweep("trial")
    assert other.dvc("status", "trial") == "Data and pipelines are up to date.\n"


def test_a_shallow_clone_names_what_it_lacks(committed, tmp_path):
    origin = f"file://{committed.root}"
    committed.run("git", "clone", "-q", "--depth=1", origin, str(tmp_path / "shallow"))
    line = one_line(tmp_path / "shallow", "diverge", "HEAD~1", "HEAD")
    assert line.startswith("error: HEAD~1: neither a run here")
    assert "unknown Git revision" in line


def test_a_copy_without_git_says_what_to_do(committed, tmp_path):
    hidden = shutil.ignore_patterns(".git")
    shutil.copytree(committed.root, tmp_path / "zip", ignore=hidden)
    line = one_line(tmp_path / "zip", "sweep")
    assert line.endswith("clone the repository, or make this copy one with: git init\n")


def test_another_users_repository_says_how_to_trust_it(committed, tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a repository to another user")
    shutil.copytree(committed.root, tmp_path / "theirs")
    subprocess.run(("chown", "-R", str(NOBODY), tmp_path / "theirs"), check=True)
    monkeypatch.chdir(tmp_path / "theirs")
    lines = verdict(Path("dvc.yaml"))
    assert lines == [f"not compared with the committed runs: {snapshot.OTHER_OWNER}"]
    with pytest.raises(UserError, match=r"git config --global --add safe\.directory"):
        snapshot.find("HEAD", "trial").lines()


def test_without_git_there_is_no_verdict_and_no_traceback(committed, monkeypatch):
    monkeypatch.chdir(committed.root)
    monkeypatch.setenv("PATH", "")
    assert verdict(Path("dvc.yaml")) == []


def test_a_lock_left_by_a_merge_is_one_line(committed, tmp_path):
    shutil.copytree(committed.root, tmp_path / "merged")
    lock = tmp_path / "merged/dvc.lock"
    lock.write_text(f"<<<<<<< HEAD\n{lock.read_text()}=======\n>>>>>>> other\n")
    line = one_line(tmp_path / "merged", "sweep")
    assert line.startswith("error: unable to read: 'dvc.lock'")
