"""The sweep against real DVC, on a toy pipeline: the same lock, nothing lost, nothing left over."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from resablate import allocator
from resablate.display import (
    Progress,
    Times,
    Watch,
    Work,
    clock,
    expectations,
    read_progress,
    recorded_seconds,
)
from resablate.pipeline import order_lock, plan
from toy import Toy


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A repository in which nothing has run."""
    return Toy.create(tmp_path_factory.mktemp("toy") / "empty")


@pytest.fixture(scope="module")
def sequential(empty):
    """A copy in which a sequential `dvc repro` has run everything."""
    toy = empty.copy(empty.root.parent.parent / "sequential")
    toy.dvc("repro")
    toy.events()
    return toy


@pytest.fixture
def toy(sequential, tmp_path):
    """A finished repository to work in."""
    return sequential.copy(tmp_path / "toy")


def change(toy, before, after):
    """Change a text that params.yaml holds once."""
    path = toy.root / "params.yaml"
    head, tail = path.read_text().split(before)
    path.write_text(head + after + tail)


def assert_no_process(toy):
    """All processes of the repository end soon: a guard needs moments, a busy machine seconds."""
    deadline = time.monotonic() + 60
    while left := toy.processes():
        assert time.monotonic() < deadline, [process.cmdline() for process in left]
        time.sleep(0.05)


def test_lock_equals_that_of_sequential_repro(empty, sequential, tmp_path):
    toy = empty.copy(tmp_path / "toy")
    # Needs both cells at once, and ends the first of them last: the lock grows in another order.
    toy.tell("wait-nanogpt", "began-residualgpt")
    toy.tell("wait-residualgpt", "ended-trial")
    printed = toy.sweep("-j", "2")
    assert toy.lock.read_bytes() == sequential.lock.read_bytes()
    events = toy.events()
    ends = [name for event, name, _ in events if event == "ended"]
    assert ends == ["prepare", "nanogpt", "trial", "residualgpt", "aggregate", "figures"]
    assert {threads for *_, threads in events} == {"1"}
    assert "7 of 7 stages are stale; up to 2 at once" in printed
    assert "all 7 stages are current; 7 ran" in printed
    assert "results: metrics/summary.json, plots/figure.svg" in printed
    assert toy.dvc("status") == "Data and pipelines are up to date.\n"


def test_current_pipeline_is_left_alone(toy):
    before = toy.lock.read_bytes(), toy.lock.stat().st_mtime_ns
    assert "all 7 stages are current; 0 ran" in toy.sweep()
    assert (toy.lock.read_bytes(), toy.lock.stat().st_mtime_ns) == before
    assert toy.events() == []


def test_changed_cells_run_and_a_failed_one_stops_only_what_needs_it(toy):
    change(toy, "  residualgpt:\n", "  residualgpt:\n    accumulation: 2\n")
    change(toy, "seed: 1337\n", "seed: 42\n")
    toy.tell("fail-residualgpt")
    printed = toy.sweep("-j", "1", status=1)
    kept = allocator.keeping(os.environ)[allocator.VARIABLE]
    assert (toy.side / "began-trial").read_text() == kept
    assert toy.events() == [
        ("began", "residualgpt", os.environ.get("OMP_NUM_THREADS", "None")),
        ("began", "trial", os.environ.get("OMP_NUM_THREADS", "None")),
        ("ended", "trial", os.environ.get("OMP_NUM_THREADS", "None")),
    ]
    assert "train@residualgpt failed; .sweep/train@residualgpt.log ends with" in printed
    assert "    error: residualgpt has been told to fail\n" in printed
    assert "not run, for they need what failed: aggregate, figures" in printed
    assert "2 done, 1 failed: train@residualgpt\n" in printed  # check and trial are done


def test_sigint_ends_all_and_the_same_command_continues(toy):
    for name in ("residualgpt", "nanogpt"):
        change(toy, f"  {name}:\n", f"  {name}:\n    accumulation: 2\n")
    hanging = [toy.tell(f"wait-{name}", "never") for name in ("residualgpt", "nanogpt")]
    sweep = toy.start("-j", "2", "train@*")
    toy.wait_for("began-residualgpt")
    toy.wait_for("began-nanogpt")
    refused = toy.sweep(status=1)
    assert refused.startswith("error: another sweep runs in this repository")
    assert refused.count("\n") == 1
    sweep.send_signal(signal.SIGINT)
    printed, _ = sweep.communicate(timeout=120)
    assert sweep.returncode == 128 + signal.SIGINT
    assert printed.endswith("continue with: python -m resablate.sweep -j 2 'train@*'\n")
    assert_no_process(toy)
    toy.events()
    for file in hanging:
        file.unlink()
    assert "all 4 stages are current; 2 ran" in toy.sweep("-j", "2", "train@*")
    assert toy.began() == ["nanogpt", "residualgpt"]


def test_kill_9_of_the_sweep_leaves_no_orphan(toy):
    change(toy, "  nanogpt:\n", "  nanogpt:\n    accumulation: 2\n")
    toy.tell("wait-nanogpt", "never")
    sweep = toy.start("train")
    toy.wait_for("began-nanogpt")
    # The sweep, its guard, DVC, and the stage (with a shell around it where that does not exec).
    assert len(toy.processes()) >= 4
    sweep.kill()
    sweep.communicate(timeout=120)
    assert_no_process(toy)


@pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")  # DVC's use of pygtrie
def test_order_and_targets(toy, monkeypatch):
    monkeypatch.chdir(toy.root)
    good = toy.lock.read_bytes()
    # The entries in another order, and one of a stage that dvc.yaml no longer has.
    schema, stages, *entries = re.split(rb"^(?=\S|  \S)", good, flags=re.M)[1:]
    lost = b"  train@lost:\n    cmd: 'true'\n"
    toy.lock.write_bytes(b"".join((schema, stages, *reversed(entries), lost)))
    file = Path("dvc.yaml")
    order_lock(file)
    assert toy.lock.read_bytes() == good
    found = plan(file, ["train@*gpt"])
    assert found.names == ["check", "prepare", "train@residualgpt", "train@nanogpt"]
    assert found.above["train@nanogpt"] == {"check", "prepare"}
    assert not found.stale


@pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")  # DVC's use of pygtrie
def test_a_plan_reads_its_own_pipeline_and_those_above_it(toy, monkeypatch):
    monkeypatch.chdir(toy.root)
    root, below = Path("dvc.yaml"), Path("below/dvc.yaml")
    alone = plan(root)
    made = alone.results[0]
    below.parent.mkdir()
    copied = f"{{cmd: cp ../{made} copy, deps: [../{made}], outs: [copy]}}"
    below.write_text(f"stages:\n  copy: {copied}\n")
    found = plan(below)
    assert found.names[-1] == "below/dvc.yaml:copy"
    assert {"check", "prepare"} < found.above["below/dvc.yaml:copy"]
    assert found.files == [root, below]
    below.write_text("stages: [")  # as long as it is not asked for
    assert plan(root) == alone


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-j", "0"], "argument -j/--jobs: '0': must be a whole number of at least 1"),
        (["trian"], "trian: no such stage in dvc.yaml; it has check, prepare, train, trial,"),
        (["--pipeline", "no/dvc.yaml"], "no/dvc.yaml: no stages; name a pipeline such as"),
    ],
)
def test_errors_are_one_line(toy, arguments, message):
    printed = toy.sweep(*arguments, status=1)
    assert printed.startswith(f"error: {message}")
    assert printed.count("\n") == 1


def test_wrong_params_delete_nothing(toy):
    change(toy, "seed: 1337\n", "seed: abc\n")
    assert toy.sweep(status=1).startswith("error: params.yaml: seed: 'abc'")
    assert (toy.root / "metrics/runs/nanogpt").exists()


def test_progress_is_read_defensively(tmp_path):
    path = tmp_path / "progress.json"
    assert read_progress(path) is None
    for text in ("", "[1]", '{"step": 3}', '{"step": "3", "steps": 4}', '{"step": 5, "steps": 4}'):
        path.write_text(text)
        assert read_progress(path) is None, text
    path.write_text('{"step": 3, "steps": 4, "loss": NaN}')
    assert read_progress(path) == Progress(3, 4, None)
    path.write_text(json.dumps({"step": 3, "steps": 4, "loss": 2.5, "tokens_per_s": 9.0}))
    assert read_progress(path) == Progress(3, 4, 2.5)


def test_time_left_by_hand(tmp_path):
    times = Times(tmp_path / "times.json")
    assert times.left(["train@a"], [], 2) is None
    # A quarter done after 10 s: 40 s in all, 30 left; two like it wait: (30 + 40 + 40) / 2.
    running = [Work("train@a", 10.0, Progress(1, 4, None), 30.0)]
    assert times.left(["train@b", "train@c"], running, 2) == 55.0
    # 20 s for what has finished before, and for its group; the longest alone takes 30.
    times.record("train@b", 20.0)
    assert Times(tmp_path / "times.json").left(["train@b", "train@c"], [], 4) == 10.0
    assert times.left([], running, 4) == 30.0
    assert [clock(s) for s in (7, 754, 3723)] == ["0:07", "12:34", "1:02:03"]


def test_the_pace_of_a_resumed_run_is_that_of_the_steps_it_makes(tmp_path, monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watch = Watch("train@a", tmp_path / "a.log")
    assert watch.look() == Work("train@a", 0.0, None, None)
    for seconds, step, rest in ((5.0, 300, None), (7.0, 300, None), (15.0, 320, 40.0)):
        now = 100.0 + seconds
        watch.file.write_text(json.dumps({"step": step, "steps": 400}))
        # 20 updates in the 10 s since the first look: 80 more take 40 s.
        assert watch.look() == Work("train@a", seconds, Progress(step, 400, None), rest)


def test_a_fresh_clone_estimates_by_the_committed_records(root):
    for run, line in {
        "main/tiny/residualgpt-full/1337": '{"seconds": 20.5, "from_step": 0}',
        "main/tiny/residualgpt-full/42": '{"seconds": 3.0, "from_step": 390}',  # resumed
        "gain/tiny/full-run_2/7": '{"seconds": 9.0, "from_step": 0}',
        "main/tiny/residualgpt-full/7": "damaged",
        "paper/gpt124m/residualgpt-full/7": '{"seconds": 8.0, "from_step": 0}',
        "paper/gpt10m/nanogpt-no_res/7": '{"seconds": 7.0, "from_step": 0}',
        "start_10m/gpt10m/cold/7": '{"seconds": 6.0, "from_step": 0}',
    }.items():
        path = root / f"metrics/environments/runs/{run}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line)
    known = {
        "train@tiny-residualgpt-full-1337": 20.5,
        "studies/dvc.yaml:gain@full-run_2-7": 9.0,
        "paper/dvc.yaml:train_124m@gpt124m-residualgpt-full-7": 8.0,
        "paper/dvc.yaml:train@gpt10m-nanogpt-no_res-7": 7.0,
        "paper/dvc.yaml:start_10m@cold-7": 6.0,
    }
    assert recorded_seconds() == known
    times = Times(root / "times.json", known)
    assert times.left(["train@tiny-residualgpt-full-1337", "train@other"], [], 2) == 20.5
    times.record("train@tiny-residualgpt-full-1337", 10.0)
    assert Times(root / "times.json", known).expected("train@tiny-residualgpt-full-1337") == 10.0


FAULTS = """\
import resource
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for size in (50_000_000, 100_000_000):
    for n in range(13):
        if n == 3:
            before = faults()
        b"x" * size
    print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_memory_that_was_freed_is_used_again_unless_it_is_large():
    plain = {name: value for name, value in os.environ.items() if name != allocator.VARIABLE}
    (away, _), (kept, large) = (
        map(int, subprocess.check_output((sys.executable, "-c", FAULTS), env=environment).split())
        for environment in (plain, allocator.keeping(plain))
    )
    assert kept < 10 < min(away, large)  # page faults of ten allocations
    assert allocator.keeping({allocator.VARIABLE: "own"}) == {allocator.VARIABLE: "own"}


def test_expectations(tmp_path):
    path = tmp_path / "summary.json"
    arms = {"full": {"best_val_loss": 1.98764}, "no_res": {"best_val_loss": None}}
    path.write_text(json.dumps({"tiny": {"floor": 3.30961, "nanogpt": arms}, "note": 3}))
    _, head, columns, row = expectations(path)
    assert head == "mean best validation loss at tiny, nats per token; unigram floor 3.3096"
    assert columns.split() == ["full"]
    assert row.split() == ["nanogpt", "1.9876"]
    assert expectations(tmp_path / "missing.json") == []
