"""Parameters set on DVC's command line arrive as they were meant, or are refused before harm."""

import subprocess
import sys

import pytest

from resablate import params
from toy import ENVIRONMENT, Toy

PIPELINE = """\
stages:
  check:
    cmd: python -m resablate.stages.check
    deps: [params.yaml]
    outs:
      - data/params.schema.json: {cache: false}
  trial:
    cmd: python stage.py trial metrics/trial
    deps: [data/params.schema.json, stage.py]
    params: [seed, lr, dropout]
    outs: [metrics/trial]
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A repository with the real check of params.yaml before a toy trial, which has run."""
    toy = Toy.create(tmp_path_factory.mktemp("toy") / "overrides")
    (toy.root / "dvc.yaml").write_text(PIPELINE)
    for key, value in (("user.name", "t"), ("user.email", "t@example.org")):
        toy.run("git", "config", key, value)
    toy.dvc("repro")
    toy.run("git", "add", "-A")
    toy.run("git", "commit", "-q", "-m", "start")
    return toy


def experiment(toy: Toy, *overrides: str) -> subprocess.CompletedProcess[str]:
    """Run an experiment from the committed parameters."""
    toy.run("git", "checkout", "-q", "params.yaml")
    changes = [word for override in overrides for word in ("-S", override)]
    command = (sys.executable, "-m", "dvc", "exp", "run", *changes, "trial")
    return subprocess.run(
        command, cwd=toy.root, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


def test_a_number_in_exponent_form_is_that_number(toy):
    done = experiment(toy, "lr=1e-3", "min_lr=1e-5", "seed=7")
    assert done.returncode == 0, done.stderr
    set_to = params.load(toy.root / "params.yaml")
    assert (set_to.lr, set_to.min_lr, set_to.seed) == (1e-3, 1e-5, 7)
    assert "min_lr: 1e-05" in (toy.root / "metrics/trial").read_text()


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("seed=abc", "error: params.yaml: seed: 'abc': Input should be a valid integer"),
        ("+dropuot=0.5", "error: params.yaml: dropuot: unknown key; remove it or correct its"),
        ("dropuot=0.5", "Could not override 'dropuot'"),
    ],
)
def test_a_wrong_or_misspelt_parameter_stops_before_anything_is_deleted(toy, override, line):
    before = (toy.root / "metrics/trial").read_bytes()
    done = experiment(toy, override)
    assert done.returncode != 0
    assert line in done.stdout + done.stderr
    assert (toy.root / "metrics/trial").read_bytes() == before
