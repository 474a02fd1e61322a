"""README.md tells the truth: its commands run as they stand, its tables are the committed ones."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from resablate import fetch

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHORTER = {  # of params.yaml, so that a run takes a second
    "n_layer: 6\n    n_head: 4\n    n_embd: 96": "n_layer: 2\n    n_head: 2\n    n_embd: 8",
    "batch_size: 16": "batch_size: 2",
    "steps: 400": "steps: 6",
    "warmup_steps: 200": "warmup_steps: 2",
    "warmup_steps: 100": "warmup_steps: 2",
    "eval_interval: 50": "eval_interval: 3",
    "n_eval_batches: 20": "n_eval_batches: 1",
    "impl: [residualgpt, nanogpt]": "impl: [residualgpt]",
    "config: [full, attn_only, ffn_only, no_res]": "config: [attn_only]",
    "seed: [1337, 42, 123]": "seed: [1337]",
}
SECONDS = 900  # after which a script has hung
WHO = {
    f"GIT_{role}_{what}": "t@example.org"
    for role in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}


def between(marker: str) -> str:
    """Return what stands between a pair of markers."""
    begin, end = f"<!-- {marker}: begin -->\n", f"<!-- {marker}: end -->"
    assert README.count(begin) == README.count(end) == 1, marker
    return README.split(begin)[1].split(end)[0]


@pytest.fixture(scope="module")
def copy(tmp_path_factory, downloads):
    """A copy of the repository's files with short runs, committed; its .venv is the one in use."""
    root = tmp_path_factory.mktemp("copy") / "resablate"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        # The other pipelines would have results of other parameters.
        if (ROOT / name).is_file() and not re.match(r"((metrics|plots)/)?(studies|paper)/", name):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    params = root / "params.yaml"
    text = params.read_text(encoding="utf-8")
    for old, new in SHORTER.items():
        assert old in text, old
        text = text.replace(old, new)
    params.write_text(text, encoding="utf-8")
    (root / ".venv").symlink_to(sys.prefix)
    shutil.copytree(downloads, root / ".downloads")
    run("git init -q && git add -A && git commit -qm start", root)
    yield root
    for process in psutil.process_iter(["cwd"]):  # DVC's queue workers do not always end
        if Path(process.info["cwd"] or "/").is_relative_to(root):
            process.kill()


def run(script: str, folder: Path) -> str:
    """Run a shell script in a folder; return what it prints.

    Through a file: a queue worker that DVC leaves behind would hold a pipe open for ever.
    """
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=environment | WHO | {fetch.MIRROR_VARIABLE: ""},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
        output.seek(0)
        printed = output.read()
    assert done.returncode == 0, f"{script}\n{printed}"
    return printed


def test_every_command_runs_in_the_order_of_reading(copy):
    if not (Path(sys.prefix) / "installed").exists():
        pytest.skip("needs the .venv that make sets up, so that make installs nothing here")
    blocks = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    commands = "".join(blocks)
    assert commands.startswith("make repro\nmake test\nsource .venv/bin/activate\n")
    # The test suite cannot run itself: this only proves that the command stands.
    # Nor can runs of six steps warm up for 200.
    script = commands.replace("make test\n", "make -n test\n").replace("_steps=200", "_steps=2")
    script = script.replace("\n", "\necho ===\n")
    outputs = dict(zip(commands.splitlines(), run(script, copy).split("===\n"), strict=False))
    assert "stages are current" in outputs["make repro"]
    assert "pytest" in outputs["make test"]
    traced = outputs["python -m resablate trace T3.attn_only.best_val_loss"]
    assert "train@tiny-residualgpt-attn_only-1337" in traced
    assert outputs["python -m resablate verify"].endswith("all holds\n")
    assert "metrics/trial.json" in outputs["dvc metrics diff"]
    assert "best_val_loss" in outputs["dvc metrics diff"]
    assert "stand-in" in (copy / "metrics/data/owt.json").read_text(encoding="utf-8")
    listed = run(". .venv/bin/activate && dvc exp list --name-only", copy).split()
    assert len(listed) >= 3 + 4  # three in the workspace, four from the queue


def test_dag_picture_is_dvcs_own():
    drawn = subprocess.run(
        [sys.executable, "-m", "dvc", "dag", "dvc.yaml", "--md", "--collapse-foreach-matrix"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert between("dag").strip() == drawn.strip()


@pytest.mark.parametrize(
    ("marker", "path", "section", "lines"),
    [
        ("table 5", "metrics/tables/table5.md", 1, 4),
        ("table 3 at 10M", "metrics/paper/tables/table3.md", 4, 3),
    ],
)
def test_the_tables_are_those_of_the_committed_runs(marker, path, section, lines):
    rows = (ROOT / path).read_text(encoding="utf-8").split("\n\n")[section].splitlines()
    shown = between(marker).splitlines()
    assert [line for line in rows if line in shown] == shown
    assert len(shown) >= lines


def test_the_studies_are_those_that_are_committed():
    rows = []
    for path in (ROOT / "metrics/studies").glob("*.json"):
        study = json.loads(path.read_text(encoding="utf-8"))
        counts = "{finished} of {planned}".format(**study["counts"])
        links = f"[{study['title']}]({study['table']}), [figure]({study['figure']})"
        rows.append(f"| {links} | {study['question']} | {counts} |")
    assert sorted(between("studies").strip().splitlines()[2:]) == sorted(rows)


def test_the_lineage_is_that_of_the_committed_results():
    printed = subprocess.run(
        [sys.executable, "-m", "resablate", "trace", "T3.attn_only.best_val_loss"],
        cwd=ROOT, check=False, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": "src", "COLUMNS": "100"},
    ).stdout.splitlines()  # fmt: skip
    shown = [line for line in between("trace").splitlines()[1:-1] if line != "…"]
    assert [line for line in shown if line not in printed] == []
    assert len(shown) > 10


def test_every_file_that_is_linked_or_in_the_tree_exists():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    tree = README.split("## The tree")[1]
    names = re.findall(r"\b[\w/]+\.py\b|\b\w+/(?=\s)", tree)
    assert len(links) > 8
    for name in links:
        assert (ROOT / name).exists(), name
    for name in names:
        assert list(ROOT.glob(f"**/{name.rstrip('/')}")), name


def test_every_module_is_in_the_tree():
    tree = README.split("## The tree")[1]
    for path in (ROOT / "src/resablate").glob("*.py"):
        assert path.name == "__init__.py" or path.name in tree, path.name
