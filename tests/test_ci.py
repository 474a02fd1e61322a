"""The workflow for GitHub Actions and the hooks for pre-commit: their commands do what they say."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from resablate.__main__ import COMMANDS

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
    f"GIT_{role}_{what}": "t@example.org"
    for role in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}


def read(name):
    return YAML(typ="safe", pure=True).load((ROOT / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def steps():
    """The shell steps of the workflow by their name."""
    found = read(".github/workflows/ci.yml")["jobs"]["test"]["steps"]
    return {step["name"]: step for step in found if "run" in step}


def shell(script, folder, **variables):
    """Run a step as GitHub's runner does."""
    return subprocess.run(
        ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script),
        cwd=folder, env=ENVIRONMENT | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_each_step_calls_what_there_is(steps):
    assert list(steps) == ["Set up", "Test", "Verify", "Metrics difference"]
    for name in ("Set up", "Test"):
        dry = steps[name]["run"].replace("make ", "make --dry-run --always-make ")
        assert shell(dry, ROOT).returncode == 0
    (command,) = re.findall(r"python -m resablate (\w+)", steps["Verify"]["run"])
    assert command in COMMANDS


def test_no_value_of_an_event_is_pasted_into_a_shell(steps):
    assert not any("${{" in step["run"] for step in steps.values())
    assert read(".github/workflows/ci.yml")["permissions"] == {"contents": "read"}


@pytest.fixture
def repository(tmp_path):
    """Two commits with a metric, which differs."""
    (tmp_path / "dvc.yaml").write_text("metrics: [m.json]\n")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    script = "git init -q; .venv/bin/python -m dvc init -q; echo .venv >> .git/info/exclude;"
    for value in ("2.5", "2.4"):
        script += f"""echo '{{"loss": {value}}}' > m.json; git add -A; git commit -qm {value};"""
    assert shell(script, tmp_path).returncode == 0
    return tmp_path


@pytest.mark.parametrize(
    ("base", "rows"),
    [
        ("HEAD^", ["| m.json | loss | 2.5 | 2.4 | -0.1 |"]),
        ("0" * 40, ["| m.json | loss | 2.5 | 2.4 | -0.1 |"]),  # of a new branch
        ("HEAD", []),
    ],
    ids=["differs", "new", "same"],
)
def test_the_difference_of_the_metrics_is_in_the_summary(steps, repository, base, rows):
    summary = repository / "summary"
    script = steps["Metrics difference"]["run"]
    done = shell(script, repository, BASE=base, GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 0, done.stderr
    title, _, head, _, *found = (
        " ".join(line.split()) for line in summary.read_text().splitlines()
    )
    assert title.startswith("### Metrics against ")
    assert head.startswith("| Path | Metric |")
    assert [row for row in found if row] == rows


def test_the_hooks_refuse_what_lint_and_format_refuse(tmp_path):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/ruff").symlink_to(Path(sys.prefix, "bin/ruff"))
    (repo,) = read(".pre-commit-config.yaml")["repos"]
    assert repo["repo"] == "local"  # nothing is downloaded
    for hook in repo["hooks"]:
        for text, status in (("x = 1\n", 0), ("import os\nx  =  1\n", 1)):
            (tmp_path / "file.py").write_text(text)
            command = shlex.split(hook["entry"])
            command[0] = str(tmp_path / command[0])
            done = subprocess.run(
                (*command, "file.py"), cwd=tmp_path, check=False, capture_output=True
            )
            assert done.returncode == status, hook["id"]
