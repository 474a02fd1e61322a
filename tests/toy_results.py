"""A repository with the real dvc.yaml whose runs are fake: a dvc.lock without any training."""

import json
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import fake_runs
from resablate.corpora import TINYSHAKESPEARE_SHA256
from resablate.stages import aggregate, check

ROOT = Path(__file__).parent.parent
COPIED = ("dvc.yaml", "requirements-numerics.lock", ".dvcignore", ".gitignore", "src/resablate")
GRID = {"impl": ["residualgpt"], "config": ["full", "attn_only"], "seed": [1, 2]}
WHO = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
# Another pipeline, in a folder of its own, whose module does not say how its table is derived.
STUDY = """\
stages:
  implementation:
    wdir: ..
    cmd: cp studies/cells.csv metrics/studies/implementation.csv
    deps: [metrics/runs.csv, studies/cells.csv]
    params:
      - studies/params.yaml: [grid]
    outs:
      - metrics/studies/implementation.csv: {cache: false}
"""
STUDY_CELLS = """\
id,table,row,column,value,printed,std,n,lo,hi,unit
implementation.warm.best,implementation,warm,best,2.5482,2.55,,1,,,nats/token
"""


def run(root: Path, *command: str) -> str:
    """Run a command that must succeed."""
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def commit(root: Path, message: str = "results") -> None:
    run(root, "git", "add", "--all")
    run(root, "git", *WHO, "commit", "--quiet", "--message", message)


def create(root: Path) -> None:
    """Write a repository with results, DVC's lock file and one commit."""
    root.mkdir(parents=True)
    run(root, "git", "init", "--quiet")
    dvc(root, "init", "--quiet")
    dvc(root, "config", "core.analytics", "false")
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, root / name)
    with chdir(root):
        _write_results()
    write(root / "studies/dvc.yaml", STUDY)
    write(root / "studies/params.yaml", "grid:\n  lr: [1e-5]\n")
    write(root / "studies/cells.csv", STUDY_CELLS)
    write(root / "metrics/studies/implementation.csv", STUDY_CELLS)
    dvc(root, "commit", "--quiet", "--force")
    commit(root)


def dvc(root: Path, *arguments: str) -> None:
    run(root, sys.executable, "-m", "dvc", *arguments)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _write_results() -> None:
    """Write every out of the root pipeline."""
    cells = fake_runs.write_params(Path(), **GRID)
    check.main()
    fake_runs.write_all(Path(), cells)
    document = Path("metrics/data/shakespeare.json")
    known = json.loads(document.read_text()) | {"source_sha256": TINYSHAKESPEARE_SHA256}
    document.write_text(json.dumps(known))
    for scale in ("tiny", "gpt10m", "tiny_owt"):
        write(Path(f"data/tokens/{scale}/vocab.json"), "{}")
    for key in cells:
        outs = key.paths("main")
        write(outs.model, f"weights of {key.stage}")
        write(outs.trail, f"trail of {key.stage}")
        beside = Path("metrics/environments") / outs.metrics.relative_to("metrics")
        write(beside, '{"environment": "0123456789abcdef", "seconds": 1.0, "from_step": 0}')
    write(Path("metrics/environments/0123456789abcdef.json"), '{"cpu": "a processor"}')
    trial = cells[0].paths("main")
    shutil.copy(trial.metrics, "metrics/trial.json")
    shutil.copy(trial.curve, "plots/curves/trial.csv")
    write(Path("data/models/trial.safetensors"), "weights")
    write(Path("metrics/trails/trial.csv"), "trail")
    aggregate.main()
    for number in range(1, 5):
        write(Path(f"plots/figure{number}.svg"), f"<svg>{number}</svg>")
        write(Path(f"plots/figure{number}.png"), f"picture {number}")
    write(Path("plots/report.html"), "<title>a page</title>")


def clone(root: Path, target: Path) -> Path:
    """Return a fresh clone: no data, no cache, no remote of DVC."""
    run(root.parent, "git", "clone", "--quiet", str(root), str(target))
    return target


def copy(root: Path, target: Path) -> Path:
    """Return a copy with the runs' files, without DVC's cache."""
    return shutil.copytree(root, target, ignore=shutil.ignore_patterns("cache", "__pycache__"))
