"""One run shared among ranks, on CPUs through gloo."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from resablate import parallel, paths
from resablate.errors import UserError
from toy import ENVIRONMENT
from toy_paper import CELLS, change, create
from toy_ranks import ACCUMULATION
from toys import toy_run, toy_tokens, toy_trainer

TESTS = Path(__file__).parent
SECONDS = 120


def start(folder, ranks, *changes):
    """Start a toy run in a folder."""
    toy_tokens(folder / "tokens")
    environment = os.environ | {
        parallel.RANKS: str(ranks),
        "PYTHONPATH": os.pathsep.join((str(TESTS.parent / "src"), str(TESTS))),
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("DVC_STAGE", None)
    return subprocess.Popen(
        (sys.executable, "-m", "toy_ranks", *changes),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def train(folder, ranks, *changes, status=0):
    """Train a toy run to its end; return what it printed."""
    process = start(folder, ranks, *changes)
    printed, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == status, printed
    return printed


def curve(folder):
    with (folder / paths.trial().curve).open(newline="") as file:
        return list(csv.DictReader(file))


def outs(folder):
    return {path: (folder / path).read_bytes() for path in paths.trial()}


def processes(folder):
    """Return every process that works in a folder."""
    found = []
    for process in psutil.process_iter(["cwd"]):
        if process.info["cwd"] == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def wait_for_the_end_of_all(folder, deadline):
    """Of helpers of torchrun too, which end just behind the process that they helped."""
    while processes(folder):
        assert time.monotonic() < deadline, "an orphan is left"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The outs of a run of two ranks, never stopped."""
    folder = tmp_path_factory.mktemp("two")
    train(folder, 2)
    return folder


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """Those of one rank."""
    folder = tmp_path_factory.mktemp("one")
    train(folder, 1)
    return folder


def test_one_rank_and_two_have_the_same_losses_to_rounding(one, two):
    pairs = list(zip(curve(one), curve(two), strict=True))
    assert [row["step"] for row, _ in pairs] == ["0", "5", "10", "12"]
    for alone, both in pairs:
        for name in ("val_loss", "train_loss", "grad_norm"):
            if alone[name]:
                assert float(both[name]) == pytest.approx(float(alone[name]), rel=1e-5), name
    assert curve(one) != curve(two)  # sums in another order: the test saw two ranks


def test_rank_0_of_two_reads_its_share_of_the_same_data(one, two):
    def batches(folder):
        lines = (folder / paths.trial().trail).read_text().splitlines()
        found = (line.split(",") for line in lines)
        return {(f[0], f[2]): f[4] for f in found if f[1] == "data"}

    alone, shared = batches(one), batches(two)
    assert {name for _, name in shared} == {
        f"{part}.{micro}" for part in ("tokens", "targets") for micro in range(0, ACCUMULATION, 2)
    }
    assert shared.items() <= alone.items()


def test_killed_ranks_leave_no_orphan_and_go_on_to_the_same_bits(two, tmp_path):
    (tmp_path / "hold").touch()
    process = start(tmp_path, 2)
    deadline = time.monotonic() + SECONDS
    while not list(tmp_path.glob(".resume/*.state")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=SECONDS)
    wait_for_the_end_of_all(tmp_path, deadline)
    assert not (tmp_path / paths.trial().metrics).exists(), "killed too late to tell"
    (tmp_path / "hold").unlink()
    assert "resumed at step 1" in train(tmp_path, 2)
    assert outs(tmp_path) == outs(two)


def test_ranks_end_with_the_dvc_that_started_them(tmp_path):
    """Even by kill -9, which no process in between sees; torchrun's ranks lead their sessions."""
    root = tmp_path / "repository"
    create(root)
    change(root / "params.yaml", base__accumulation=2, scales__gpt10m__steps=10**6)
    dvc = (sys.executable, "-m", "dvc")
    subprocess.run((*dvc, "init", "-q", "--no-scm"), cwd=root, env=ENVIRONMENT, check=True)
    repro = subprocess.Popen(
        (*dvc, "repro", "-q", "-s", CELLS[0]),
        cwd=root,
        env=ENVIRONMENT | {parallel.RANKS: "2"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + SECONDS
    while not list(root.glob(".resume/*")):  # the run has begun: its curve so far lies there
        assert repro.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(processes(root)) >= 4  # dvc, the agent and two ranks
    os.kill(repro.pid, signal.SIGKILL)
    repro.wait()
    wait_for_the_end_of_all(root, deadline)


def test_a_run_that_diverges_ends_every_rank(tmp_path):
    assert "diverged at step" in train(tmp_path, 2, "lr=1e30", "min_lr=1e-1")
    document = json.loads((tmp_path / paths.trial().metrics).read_text())
    assert document["status"] == "diverged"
    wait_for_the_end_of_all(tmp_path, time.monotonic() + SECONDS)


def test_more_ranks_than_micro_batches_are_refused(tmp_path):
    printed = train(tmp_path, 3, "accumulation=2", status=1)
    assert printed.startswith("error: accumulation: 2 micro-batches an update cannot be shared")
    assert printed.count("\n") == 1


@pytest.mark.parametrize("text", ["0", "two", "-1", ""])
def test_a_wrong_number_of_ranks_is_one_line(text, monkeypatch, tmp_path):
    monkeypatch.setenv(parallel.RANKS, text)
    with pytest.raises(UserError, match="must be a number of processes"):
        parallel.execute("toy", toy_run(), 3, None, paths.trial())


def test_accumulated_micro_batches_are_one_large_batch(tmp_path):
    """The mean over eight micro-batches, not the sum and not the last."""
    trainer = toy_trainer(tmp_path, accumulation=ACCUMULATION, dropout=0.0)
    loss, _ = trainer.gradient()
    batches = [trainer.tokens.train_batch(3, i, trainer.run.batch_size) for i in range(8)]
    alone = [trainer.model.loss(*batch).item() for batch in batches]
    assert loss.item() == pytest.approx(sum(alone) / 8, rel=1e-6)
    whole = torch.autograd.grad(
        trainer.model.loss(*map(torch.cat, zip(*batches, strict=True))),
        list(trainer.optimiser.parameters.values()),
    )
    for parameter, gradient in zip(trainer.optimiser.parameters.values(), whole, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-4, atol=1e-8)
