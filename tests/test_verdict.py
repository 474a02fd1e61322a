"""The verdict of a sweep: identical, different or not comparable with what is committed."""

import json
import subprocess
from pathlib import Path

from resablate import verdict

RUN = "metrics/runs/main/tiny/a-full/{}.json"
LOCK = """\
schema: '2.0'
stages:
  train@1:
    cmd: one
    deps: [{{path: src, md5: {code}}}]
    outs: [{{path: {run1}, md5: {out1}}}]
  train@2:
    cmd: two
    deps: [{{path: src, md5: c}}]
    outs: [{{path: {run2}, md5: b}}]
  aggregate:
    cmd: three
    outs: [{{path: metrics/runs.csv, md5: z}}]
"""


def write(root: Path, code: str, out1: str, loss: float, environment: str) -> None:
    """Write a lock with two runs, and the files beside the first."""
    run1, run2 = RUN.format(1), RUN.format(2)
    (root / "dvc.lock").write_text(LOCK.format(code=code, out1=out1, run1=run1, run2=run2))
    beside = root / "metrics/environments/runs/main/tiny/a-full/1.json"
    beside.parent.mkdir(parents=True, exist_ok=True)
    beside.write_text(json.dumps({"environment": environment}))
    record = {"cpu": environment, "threads": 1}
    (root / f"metrics/environments/{environment}.json").write_text(json.dumps(record))
    (root / run1).parent.mkdir(parents=True, exist_ok=True)
    (root / run1).write_text(json.dumps({"best_val_loss": loss, "final_val_loss": None}))


def commit(root: Path) -> None:
    """Commit all but the run's document, which only DVC keeps."""
    (root / "metrics/runs.csv").write_text("stage,best_val_loss,final_val_loss\ntrain@1,2.5,\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(
        ["git", "add", "dvc.lock", "metrics/runs.csv", "metrics/environments"], check=True
    )
    subprocess.run(["git", *who, "commit", "-qm", "start"], check=True)


def test_identical_runs_are_counted(root):
    write(root, "c", "a", 2.5, "amd")
    commit(root)
    lines = verdict.verdict(Path("dvc.yaml"))
    assert lines == ["reproduced: 2 of 2 runs are bit-identical to the committed dvc.lock"]


def test_a_different_run_is_named_with_its_numbers_and_environment(root):
    write(root, "c", "a", 2.5, "amd")
    commit(root)
    write(root, "c", "other", 2.625, "intel")
    lines = verdict.verdict(Path("dvc.yaml"))
    assert lines == [
        "reproduced: 1 of 2 runs are bit-identical to the committed dvc.lock",
        "  train@1 differs: best_val_loss 2.5 -> 2.625 (+0.12)",
        "    environment: cpu: amd -> intel",
    ]


def test_a_run_of_other_code_is_not_compared(root):
    write(root, "c", "a", 2.5, "amd")
    commit(root)
    write(root, "edited", "other", 9.0, "amd")
    lines = verdict.verdict(Path("dvc.yaml"))
    assert lines[0] == "reproduced: 1 of 1 runs are bit-identical to the committed dvc.lock"
    assert lines[1].startswith("not compared: 1 runs")


def test_without_git_or_a_committed_lock_there_is_no_verdict(root):
    write(root, "c", "a", 2.5, "amd")
    assert verdict.verdict(Path("dvc.yaml")) == []
