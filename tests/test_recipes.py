"""README's recipes, followed: an arm is one file, a figure two."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.repo import Repo

import fake_runs
from resablate import params, studies
from resablate.stages import aggregate

ROOT = Path(__file__).parents[1]
FIGURE = '''def figure_of_the_reader(data: Data) -> Figure:
    """Final losses of the first implementation."""
    figure, (ax,) = plotting.figure(1, 4.5, 3.8)
    values = [run["final_val_loss"] for run in data.arm(data.impls[0], data.configs[0])]
    ax.plot(data.seeds, values, "o")
    figure.suptitle(data.title("Final losses"))
    return figure


'''
# DVC's own use of pygtrie.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")


def change(path: Path, old: str, new: str) -> None:
    """Edit a file as a person does."""
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, (path, old)
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_an_arm_of_a_study_is_one_file(root):
    for name in ("params.yaml", "dvc.yaml", "studies/params.yaml", "studies/dvc.yaml"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    file = root / "studies/params.yaml"
    change(file, "depth: [layers_2, layers_4, layers_12]", "depth: [layers_2, layers_3]")
    change(
        file, "  layers_2: {n_layer: 2}\n", "  layers_2: {n_layer: 2}\n  layers_3: {n_layer: 3}\n"
    )

    arm = studies.load().arm("depth", ["attn_only", "layers_3"])
    run = studies.load().resolve(params.load(), "depth", arm)
    assert (run.n_layer, run.ffn_skip) == (3, 0.0)
    Repo.init(no_scm=True).close()
    with Repo() as repo:
        (stage,) = repo.stage.collect("studies/dvc.yaml:depth@attn_only-layers_3-42")
    assert stage.cmd.endswith("stages.study depth attn_only layers_3 42")
    outs = {Path(out.fs_path).relative_to(root).as_posix() for out in stage.outs}
    assert "metrics/runs/depth/tiny/attn_only-layers_3/42.json" in outs


def test_a_figure_is_two_files(root):
    fake_runs.make(root, impl=["residualgpt"], seed=[1, 2])
    aggregate.main()
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "dvc.yaml", root)
    module = root / "src/resablate/stages/figures.py"
    change(module, "FIGURES = (", FIGURE + "FIGURES = (")
    change(module, "figure3, figure4)", "figure3, figure4, figure_of_the_reader)")
    kept = "      - plots/figure4.svg:\n          cache: false\n"
    more = kept.replace("figure4", "figure5")
    change(root / "dvc.yaml", kept, kept + more + more.replace("svg", "png"))

    command = (sys.executable, "-W", "error", "-m", "resablate.stages.figures")
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": "src"})
    Repo.init(no_scm=True).close()
    with Repo() as repo:
        (stage,) = repo.stage.collect("figures")
    outs = {Path(out.fs_path).relative_to(root) for out in stage.outs}
    assert outs == {path.relative_to(root) for path in (root / "plots").glob("figure*")}
    assert len(outs) == 10
