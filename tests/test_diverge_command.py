"""`python -m resablate diverge` as it is called: on files, on git revisions, on edited trails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from resablate import __main__ as commands
from resablate import params, paths, runs
from resablate.snapshot import _resolve
from toys import toy_run, toy_tokens

ROOT = Path(__file__).parent.parent
# DVC's own use of pygtrie.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")


def command(capsys, *arguments):
    """Return the exit status and what was printed."""
    with pytest.raises(SystemExit) as caught:
        commands.run_command(commands.main, ["diverge", *arguments], status=2)
    printed = capsys.readouterr()
    return caught.value.code, printed.out + printed.err


@pytest.fixture
def two_runs(root):
    """Two runs of the main grid that differ in their learning rate."""
    tokens = toy_tokens(root / "tokens")
    for seed, lr in ((1, 1e-3), (2, 2e-3)):
        outs = paths.run("main", "tiny", "residualgpt-full", seed)
        runs.execute("toy", toy_run(lr=lr, eval_interval=4), 1, tokens, outs)


def test_command_prints_where_and_how_far(two_runs, capsys):
    a, b = (f"tiny-residualgpt-full-{seed}" for seed in (1, 2))
    status, printed = command(capsys, a, b)
    assert status == 1
    lines = printed.splitlines()
    assert (
        lines[2].split(maxsplit=2)[2].startswith("steps 0 to 3, update, embedding: wte (no trail")
    )
    assert "ulps net of signs; 28 of 28 tensors of this phase differ" in lines[3]
    assert "before it         62 of 248 fingerprints agree" in lines
    assert "environment       equal" in lines
    final = [json.loads(Path(f"metrics/runs/main/tiny/residualgpt-full/{i}.json").read_text())
             ["final_val_loss"] for i in (1, 2)]  # fmt: skip
    difference = f"final_val_loss {final[0]} in A, {final[1]} in B ({final[1] - final[0]:+.3g})"
    assert any(line.endswith(difference) for line in lines)
    status, printed = command(capsys, a, "metrics/runs/main/tiny/residualgpt-full/1.json", "--json")
    assert status == 0
    assert json.loads(printed)["identical"] is True


def test_equal_trails_with_other_results_are_not_identical(two_runs, capsys):
    path = Path("metrics/runs/main/tiny/residualgpt-full/2.json")
    path.write_text(Path("metrics/runs/main/tiny/residualgpt-full/1.json").read_text().replace(
        '"full_val_loss": ', '"full_val_loss": 1'))  # fmt: skip
    trails = [Path(f"metrics/trails/main/tiny/residualgpt-full/{i}.csv") for i in (1, 2)]
    trails[1].write_text(trails[0].read_text())
    record = Path("metrics/environments/runs/main/tiny/residualgpt-full/2.json")
    record.write_text(json.dumps(json.loads(record.read_text()) | {"environment": "other"}))
    Path("metrics/environments/other.json").write_text('{"threads": 7}')
    status, printed = command(capsys, *map(str, trails))
    assert status == 1
    assert "no difference  in the 248 fingerprints that both have\n" in printed
    assert "results        full_val_loss " in printed
    assert "threads: 1 in A, 7 in B\n" in printed


def test_an_edited_trail_and_wrong_names_are_errors_of_one_line(two_runs, capsys):
    path = Path("metrics/trails/main/tiny/residualgpt-full/2.csv")
    lines = path.read_text().splitlines()
    lines[99] = lines[99].replace(",", "0,", 1)
    path.write_text("\n".join(lines))
    status, printed = command(capsys, str(path), "tiny-residualgpt-full-1")
    assert status == 2
    assert printed.startswith(f"error: {path}: the trail's chain is broken: line 100 or the one")
    assert printed.count("\n") == 1
    status, printed = command(capsys, "trial", "tiny-residualgpt-full-1")
    assert (status, printed) == (
        2, "error: metrics/trails/trial.csv: no such file; get it with: dvc pull, or dvc repro\n"
    )  # fmt: skip


TOY_STAGE = """\
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from toys import toy_run, toy_tokens
from resablate import paths, runs
from ruamel.yaml import YAML
lr = YAML(typ="safe").load(Path("params.yaml"))["lr"]
runs.execute("toy", toy_run(lr=lr), 1, toy_tokens(Path("tokens")), paths.trial())
"""


def test_two_git_revisions_in_a_real_repository(root, capsys):
    environment = os.environ | {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "PYTHONPATH": str(ROOT / "src"),
        **{f"GIT_{who}_{what}": "toy" for who in ("AUTHOR", "COMMITTER")
           for what in ("NAME", "EMAIL")},
    }  # fmt: skip

    def call(*command):
        subprocess.run(command, env=environment, check=True, capture_output=True)

    (root / "stage.py").write_text(TOY_STAGE.format(tests=str(ROOT / "tests")))
    (root / ".gitignore").write_text("/tokens\n/metrics/trails\n/.resume\n/metrics/environments\n")
    (root / "dvc.yaml").write_text(
        "stages:\n  trial:\n    cmd: python stage.py\n    deps: [stage.py]\n    params: [lr]\n"
        "    outs: [metrics/trails/trial.csv]\n"
        "    metrics: [{metrics/trial.json: {cache: false}}]\n"
    )
    call("git", "init", "-q")
    call("dvc", "init", "-q")
    for lr in (0.001, 0.002):
        (root / "params.yaml").write_text(f"lr: {lr}\n")
        call("dvc", "repro", "-q")
        call("git", "add", "-A")
        call("git", "commit", "-qm", f"lr {lr}")
    (root / "metrics/trails/trial.csv").unlink()  # from the cache alone
    status, printed = command(capsys, "HEAD~1", "HEAD")
    assert status == 1
    lines = printed.splitlines()
    assert lines[:2] == [
        "A                 HEAD~1:trial",
        "B                 HEAD:trial",
    ]
    assert "steps 0 to 4, update, embedding: wte" in lines[2]
    assert "parameters        lr: 0.001 in A, 0.002 in B" in lines
    assert "code and data     equal" in lines
    assert "final_val_loss" in printed
    status, printed = command(capsys, "HEAD:metrics/trails/trial.csv", "HEAD:trial")
    assert status == 0
    assert "\nparameters     equal\n" in printed
    status, printed = command(capsys, "HEAD", "no-such-experiment")
    assert status == 2
    assert printed.startswith("error: no-such-experiment: neither a run here")


def test_resolved_parameters_of_a_lock_entry_are_those_of_the_run():
    """dvc.lock keeps the layers; what they come to is what `Params.resolve` says."""
    text = params.load(ROOT / "params.yaml")
    for impl in ("residualgpt", "nanogpt"):
        layers = {
            "base": text.base,
            "scales.tiny": text.scales["tiny"],
            f"impls.{impl}": text.impls[impl],
            "configs.no_res": text.configs["no_res"],
        }
        entry = {name: layer.model_dump(exclude_none=True) for name, layer in layers.items()}
        run = text.resolve("tiny", impl, "no_res").model_dump()
        assert _resolve(entry) == run
        assert _resolve(entry | {"lr": 0.5, "steps": None}) == run | {"lr": 0.5}
