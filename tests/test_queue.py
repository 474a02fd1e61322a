"""DVC's own queue with two workers: a killed run leaves no half result, and goes on next time."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from servers import wait_until
from toy import ENVIRONMENT, Toy

# As checkpoint.py does: beside the main working copy, wherever the experiment runs.
SAVES = """\
from resablate import paths
seed = Path("params.yaml").read_text().split("\\nseed: ")[1].split()[0]
state = paths.main_root() / ".resume" / f"{name}-{seed}"
if state.exists():
    note(f"resumed-{seed}")
state.parent.mkdir(exist_ok=True)
state.touch()
note(f"at-{seed}")
name = f"{name}-{seed}" if name == "trial" else name
progress ="""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A repository in which all but the trial has run."""
    toy = Toy.create(tmp_path / "toy")
    monkeypatch.setitem(ENVIRONMENT, "TOY_SIDE", str(toy.side))
    for variable in ("AUTHOR", "COMMITTER"):
        monkeypatch.setitem(ENVIRONMENT, f"GIT_{variable}_NAME", "t")
        monkeypatch.setitem(ENVIRONMENT, f"GIT_{variable}_EMAIL", "t@example.org")
    stage = toy.root / "stage.py"
    stage.write_text(stage.read_text().replace("progress =", SAVES))
    (toy.root / ".gitignore").write_text(".resume/\n")
    toy.dvc("repro", "prepare")
    toy.run("git", "add", "-A")
    toy.run("git", "commit", "-qm", "start")
    toy.events()
    yield toy
    for process in toy.processes():  # DVC's workers outlive their work
        with suppress(psutil.Error):
            process.kill()


def unheard(toy, *arguments):
    """Run DVC without a pipe, which the workers that it leaves behind would hold open."""
    command = (sys.executable, "-m", "dvc", *arguments)
    subprocess.run(
        command, cwd=toy.root, env=ENVIRONMENT, check=True, timeout=90,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def training(toy, seed):
    """Return the process that trains a seed."""
    found = [
        process
        for process in toy.processes()
        if process.cmdline()[1:3] == ["stage.py", "trial"]
        and f"\nseed: {seed}\n" in Path(process.cwd(), "params.yaml").read_text()
    ]
    assert len(found) == 1
    return found[0]


def statuses(toy):
    """Return the states of all queued experiments, sorted."""
    rows = toy.dvc("queue", "status").splitlines()[1:]
    states = ("Queued", "Running", "Success", "Failed")
    return sorted(word for row in rows for word in row.split() if word in states)


@pytest.mark.slow  # DVC's workers may take minutes to notice that one of them is gone
def test_two_workers_one_of_which_is_killed(toy):
    for seed in (1, 2):
        toy.tell(f"wait-trial-{seed}", "never")
    toy.dvc("exp", "run", "--queue", "-S", "seed=1,2", "trial")
    unheard(toy, "queue", "start", "-j", "2")
    for seed in (1, 2):
        toy.wait_for(f"at-{seed}-trial")
    training(toy, 1).kill()
    wait_until(lambda: "Failed" in statuses(toy), "the killed one has not failed")
    (toy.side / "wait-trial-2").unlink()
    wait_until(lambda: statuses(toy) == ["Failed", "Success"], "the other has not finished")
    # Neither the workspace nor the list of experiments has anything of the killed one.
    assert toy.run("git", "status", "--porcelain").stdout == ""
    assert not (toy.root / "metrics/trial").exists()
    assert len(toy.dvc("exp", "list", "--name-only").split()) == 1
    # The same command again: the finished one is there already, the other goes on.
    (toy.side / "wait-trial-1").unlink()
    toy.events()
    toy.dvc("exp", "run", "--queue", "-S", "seed=1", "trial")
    unheard(toy, "exp", "run", "--run-all", "-j", "2")
    assert ("resumed-1", "trial") in [(event, name) for event, name, _ in toy.events()]
    names = toy.dvc("exp", "list", "--name-only").split()
    assert len(names) == 2
    # What the DVC extension of Visual Studio Code asks for its table.
    (_, *shown) = json.loads(toy.dvc("exp", "show", "--json"))
    listed = [experiment["name"] for row in shown for experiment in row["experiments"] or ()]
    assert set(names) <= set(listed)
    toy.dvc("data", "status", "--json", "--granular")
