"""Cells as jobs of a real Slurm on loopback: the lock of one machine, whatever happens to jobs."""

import subprocess
import time

import psutil
import pytest

from servers import slurm, wait_until
from toy import ENVIRONMENT, Toy

pytest.importorskip("submitit")
CELLS = ("residualgpt", "nanogpt", "third", "fourth")
LAYER = "{tie_weights: false, attention: manual, eval_batches: redrawn, schedule: constant}"
# Saves where it is, in the folder of resumable states, before it waits or fails.
SAVES = """\
from resablate import paths
state = paths.main_root() / ".resume" / name
if state.exists():
    note("resumed")
state.parent.mkdir(exist_ok=True)
state.touch()
records = Path("metrics/environments")
records.mkdir(parents=True, exist_ok=True)
(records / f"{name}.json").write_text(name)
progress ="""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm(tmp_path_factory.mktemp("slurm")) as environment, pytest.MonkeyPatch.context() as p:
        for name, value in environment.items():
            p.setitem(ENVIRONMENT, name, value)
        yield environment


@pytest.fixture(scope="module")
def empty(tmp_path_factory, cluster):
    """A repository of four cells, committed but for one file; nothing has run."""
    toy = Toy.create(tmp_path_factory.mktemp("toy") / "empty")
    params, stage = toy.root / "params.yaml", toy.root / "stage.py"
    text = params.read_text()
    text = text.replace("impl: [residualgpt, nanogpt]", f"impl: [{', '.join(CELLS)}]")
    params.write_text(text.replace("impls: ", f"impls:\n  third: {LAYER}\n  fourth: {LAYER} "))
    toy.run("git", "add", "-A")
    toy.run("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "start")
    stage.write_text(stage.read_text().replace("progress =", SAVES))
    (toy.root / ".gitignore").write_text(".resume/\n.sweep/\n")
    return toy


@pytest.fixture(scope="module")
def sequential(empty):
    """A copy in which one machine has run everything."""
    toy = empty.copy(empty.root.parent.parent / "sequential")
    toy.dvc("repro")
    return toy


@pytest.fixture
def toy(sequential, empty, tmp_path, monkeypatch):
    toy = empty.copy(tmp_path / "toy")
    monkeypatch.setitem(ENVIRONMENT, "TOY_SIDE", str(toy.side))
    yield toy
    for process in toy.processes():  # of a test that has failed half-way
        process.kill()


def jobs(toy):
    """Return the number of the job of each cell that runs, from the sweep's own words."""
    ask = ("squeue", "--noheader", "--states=RUNNING", "--format=%i")
    return subprocess.run(ask, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


def slurms(*command):
    subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True)


def job_processes(toy):
    """Return submitit's process of each job of the repository, by the job's number."""
    found = {}
    for process in psutil.process_iter():
        try:
            if "submitit.core._submit" in process.cmdline() and process.name() != "srun":
                found[process.environ()["SLURM_JOB_ID"]] = process
        except psutil.Error:
            continue
    return found


def job_of(toy, cell):
    """Return the number of the job that runs a cell."""
    for process in psutil.process_iter():
        try:
            if process.cmdline()[-1:] == [f"metrics/runs/{cell}"]:
                return process.environ()["SLURM_JOB_ID"]
        except psutil.Error:
            continue
    raise AssertionError(f"no job runs {cell}")


def test_one_requeued_and_one_killed_end_with_the_lock_of_a_sequential_run(sequential, toy):
    for cell in CELLS[:2]:
        toy.tell(f"wait-{cell}", "never")
    sweep = toy.start("--slurm", "-j", "2")
    for cell in CELLS[:2]:
        toy.wait_for(f"began-{cell}")
    requeued, killed = (job_of(toy, cell) for cell in CELLS[:2])
    slurms("scontrol", "requeue", requeued)
    job_processes(toy)[killed].kill()
    for cell in CELLS[:2]:
        (toy.side / f"wait-{cell}").unlink()
    hurry(requeued)
    printed, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 0, printed
    assert "4 cells handed to Slurm" in printed
    assert_went_on("residualgpt", printed)
    assert f"train@nanogpt: job {killed} was ended from outside; job " in printed
    assert printed.count("restored from DVC's cache") == 4
    assert toy.lock.read_bytes() == sequential.lock.read_bytes()
    events = [(event, name) for event, name, _ in toy.events()]
    for cell in CELLS:
        # Of the job that is killed, the training may still end before the node sees it.
        assert events.count(("began", cell)) in ((1, 2) if cell in CELLS[:2] else (1,))
        assert events.count(("resumed", cell)) == events.count(("began", cell)) - 1
        assert (toy.root / f"metrics/environments/{cell}.json").read_text() == cell
    assert toy.dvc("status") == "Data and pipelines are up to date.\n"
    assert list((toy.root / ".dvc/tmp/exps/slurm").glob("train*@*/")) == []


def assert_went_on(cell, printed):
    """A node may refuse a job that comes back too soon; then the sweep submits it again."""
    assert (
        f"train@{cell} was requeued by Slurm; it will go on where it was saved" in printed
        or f"train@{cell}: job " in printed
    )


def hurry(job):
    """Let a requeued job start now: Slurm would wait for two minutes."""
    ask = ("squeue", "--noheader", f"--jobs={job}", "--format=%T")
    wait_until(
        lambda: subprocess.run(ask, env=ENVIRONMENT, capture_output=True, check=True)
        .stdout.startswith(b"PENDING"),
        "not requeued",
    )  # fmt: skip
    time.sleep(1.5)  # within the second, the node would still refuse its credential
    slurms("scontrol", "update", f"jobid={job}", "StartTime=now")


def test_a_time_limit_requeues_the_job_which_goes_on(toy):
    toy.tell("wait-third", "never")
    sweep = toy.start("--slurm", "train@third")
    toy.wait_for("began-third")
    job = job_of(toy, "third")
    slurms("scancel", "--signal=USR2", job)  # what Slurm sends a minute and a half before the end
    (toy.side / "wait-third").unlink()
    hurry(job)
    printed, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 0, printed
    assert_went_on("third", printed)
    assert ("resumed", "third") in [(event, name) for event, name, _ in toy.events()]


def test_a_failed_cell_is_named_and_the_same_command_finishes(toy):
    toy.tell("fail-third")
    printed = toy.sweep("--slurm", "train@third", status=1)
    assert "train@third FAILED on Slurm; see .sweep/slurm/train@third.log, " in printed
    assert "    error: third has been told to fail\n" in printed
    toy.events()
    (toy.side / "fail-third").unlink()
    assert "all 3 stages are current" in toy.sweep("--slurm", "train@third")
    assert toy.began() == ["third"]


def test_a_killed_sweep_leaves_jobs_that_the_next_one_ends(toy):
    toy.tell("wait-third", "never")
    sweep = toy.start("--slurm", "train@third")
    toy.wait_for("began-third")
    refused = toy.sweep("--slurm", status=1)
    assert refused.startswith("error: another sweep runs in this repository")
    first = job_of(toy, "third")
    sweep.kill()
    sweep.communicate()
    (toy.side / "wait-third").unlink()
    (toy.side / "began-third").unlink()
    toy.tell("wait-third", "never")
    sweep = toy.start("--slurm", "train@third")
    toy.wait_for("began-third")
    assert job_of(toy, "third") != first
    sweep.terminate()
    printed, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 128 + 15
    assert "continue with: python -m resablate.sweep --slurm train@third\n" in printed
    assert jobs(toy) == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slurm", "--option", "partition"], "argument --option: 'partition': must be KEY=VALUE"),
        (["--slurm", "--option", "slurm_partition=no"], "--slurm: "),
        (["--slurm", "--option", "color=red"], "--slurm: "),
        (["--option", "mem_gb=1"], "--option is for jobs of --slurm"),
    ],
)
def test_errors_are_one_line(toy, arguments, message):
    printed = toy.sweep(*arguments, "train@third", status=1)
    assert printed.splitlines()[-1].startswith(f"error: {message}")
    assert "Traceback" not in printed
    assert jobs(toy) == ""
