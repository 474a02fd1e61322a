"""A stage run alone: the lock's text is DVC's own, and no other entry is parsed."""

import re
import subprocess
import sys

import pytest

from resablate import one_stage
from toy import ENVIRONMENT, Toy

NAME = "train@nanogpt"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    toy = Toy.create(tmp_path_factory.mktemp("toy") / "made")
    toy.dvc("repro")
    return toy


@pytest.fixture
def toys(made, tmp_path):
    """Two copies in which one stage is stale."""
    copies = [made.copy(tmp_path / name) for name in ("ours", "dvc")]
    for toy in copies:
        path = toy.root / "params.yaml"
        path.write_text(path.read_text().replace("nanogpt:\n", "nanogpt:\n    accumulation: 2\n"))
    return copies


def run(toy, name=NAME, status=0):
    command = (sys.executable, "-P", one_stage.__file__, name)
    done = subprocess.run(
        command, cwd=toy.root, env=ENVIRONMENT, check=False, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def same(ours, dvc):
    assert f"Running stage '{NAME}'" in run(ours)
    dvc.dvc("repro", "--single-item", NAME)
    assert ours.lock.read_bytes() == dvc.lock.read_bytes()
    assert "didn't change, skipping" in run(ours)


def test_an_entry_takes_its_place(toys, made):
    same(*toys)
    assert toys[0].lock.read_bytes() != made.lock.read_bytes()


def test_a_new_entry_is_the_last(toys):
    for toy in toys:
        text = toy.lock.read_text()
        toy.lock.write_text(text.replace(one_stage.entry(text, NAME)[0], ""))
    same(*toys)


def test_a_new_lock(toys):
    for toy in toys:
        toy.lock.unlink()
    same(*toys)


def test_a_lock_that_is_not_as_dvc_writes_it_is_left_to_dvc(toys):
    for toy in toys:
        toy.lock.write_text(f"# a comment\n{toy.lock.read_text()}")
    same(*toys)
    assert toys[0].lock.read_text().startswith("# a comment\n")


def test_no_other_entry_is_parsed(toys):
    """One that DVC refuses stays as it is."""
    toy, _ = toys
    text = toy.lock.read_text()
    broken = re.sub(r"(  trial:\n)    cmd:.*\n", r"\1    - wrong\n", text)
    assert broken != text
    toy.lock.write_text(broken)
    run(toy)
    assert "  trial:\n    - wrong\n" in toy.lock.read_text()


def test_a_stage_that_is_not_there_is_dvcs_error(made):
    assert "ERROR" in run(made, "train@other", status=255)


def test_a_name_is_found_whole():
    text = "schema: '2.0'\nstages:\n  a-1:\n    cmd: x\n  a:\n    cmd: |\n      y\n"
    assert one_stage.FORM.match(text)
    assert one_stage.entry(text, "a")[0] == "  a:\n    cmd: |\n      y\n"
    assert one_stage.entry(text, "1") is None
    assert one_stage.replaced(text, "b", "  b:\n    cmd: z\n") == f"{text}  b:\n    cmd: z\n"
