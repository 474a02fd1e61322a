"""Hostile inputs: nothing from outside is executed, unpacked, or put where it does not belong."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from resablate import environment, fetch, lockfile, params, paths, slurm
from resablate.errors import UserError
from toy import ENVIRONMENT, Toy

ROOT = Path(__file__).parent.parent
# Reading any of these runs code of the file's author, or unpacks where he says, or asks a shell.
MODULES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "tarfile"}
CALLS = {
    "eval", "exec", "os.system", "os.popen", "torch.load", "np.load", "numpy.load",
    "yaml.load", "yaml.unsafe_load", "shutil.unpack_archive",
}  # fmt: skip
METHODS = {"extract", "extractall", "read_pickle"}
SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}|gh[pousr]_\w{36}|"
    r"^\s*(password|secret_access_key|access_key_id|session_token)\s*=",
    re.MULTILINE,
)


ALLOWED = {
    "verify.py": ["shell=True"],  # `verify --full` runs a stage's own command, as DVC does
    "pack.py": ["tarfile", "tar.extract"],  # files of the manifest alone, under filter="data"
    "lockfile.py": ["yaml.load"],  # under the safe loader, which the test below shows
}


def dangers(source):
    """Return what a module does that a hostile input could use."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [name for name in names if name.partition(".")[0] in MODULES]
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in CALLS or (
                isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
            ):
                found.append(name)
            found += [
                "shell=True"
                for word in node.keywords
                if word.arg == "shell" and ast.unparse(word.value) != "False"
            ]
    return found


def test_no_module_unpickles_unpacks_evaluates_or_asks_a_shell():
    hostile = "import pickle\nimport torch\ntorch.load(f)\nz.extractall()\nrun('x', shell=True)\n"
    assert dangers(hostile) == ["pickle", "torch.load", "z.extractall", "shell=True"]
    for path in (ROOT / "src").rglob("*.py"):
        assert dangers(path.read_text(encoding="utf-8")) == ALLOWED.get(path.name, []), path


def test_the_fast_reader_of_dvc_lock_makes_plain_values_only():
    with pytest.raises(UserError, match=r"not a dvc\.lock"):
        lockfile.parse_lock("stages: !!python/object/apply:os.system ['true']\n")


# -- archives and downloads ------------------------------------------------------------------------


def test_a_wheel_cannot_write_outside_of_its_folder(root):
    inner = root / "inner"
    inner.mkdir()
    os.chdir(inner)
    wheel = inner / "bad.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("../evil", "/../evil", "good.txt"):
            archive.writestr(name, name)
    assert fetch.read_member(wheel, "../evil") == b"../evil"
    assert sorted(path.name for path in root.rglob("*")) == ["bad.whl", "inner"]


def test_a_wheel_or_file_of_other_bytes_is_refused_and_not_kept(root, monkeypatch):
    mirror = root / "mirror"
    mirror.mkdir()
    (mirror / "some.whl").write_bytes(b"another wheel")
    monkeypatch.setenv(fetch.MIRROR_VARIABLE, str(mirror))
    sources = [fetch.mirror("some.whl")]
    with pytest.raises(UserError, match="refused, damaged or another version: SHA-256"):
        fetch.fetch("some.whl", fetch.sha256_of(b"the wheel"), sources)
    assert not (root / ".downloads").exists()


# -- names and values ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """The real pipeline without data, and a shell that would leave `pwned`."""
    root = tmp_path_factory.mktemp("pipeline")
    for name in ("params.yaml", "dvc.yaml", "requirements-numerics.lock"):
        shutil.copy(ROOT / name, root)
    (root / "src").symlink_to(ROOT / "src")
    command = (sys.executable, "-m", "dvc", "init", "--quiet", "--no-scm")
    subprocess.run(command, cwd=root, env=ENVIRONMENT, check=True)
    return root


EVIL = "x;touch pwned;$(touch pwned)`touch pwned`"


HOSTILE = {  # of params.yaml: what is replaced, by what, and what the refusal names
    "scale": ("\nscale: tiny\n", f"\nscale: '{EVIL}'\n", "scales has no"),
    "grid.config": ("  config: [full,", f"  config: ['{EVIL}',", "configs has no"),
    "grid.seed": ("  seed: [1337,", f"  seed: ['{EVIL}',", "grid.seed.0: "),
    "impl": ("\nimpl: residualgpt\n", f"\nimpl: '{EVIL}'\n", "impls has no"),
    "config": ("\nconfig: attn_only\n", f"\nconfig: '{EVIL}'\n", "configs has no"),
    "seed": ("\nseed: 1337\n", f"\nseed: '{EVIL}'\n", "seed: "),
    "configs": ("\nconfigs: ", f"\nconfigs:\n  '{EVIL}': {{attn_skip: 1.0}} ", "names of scales"),
    "impls": ("\nimpls: ", f"\nimpls:\n  '{EVIL}': {{bias: true}} ", "names of scales"),
}


@pytest.fixture
def hostile(pipeline, request):
    """Put a hostile value into the pipeline's parameters; return what the refusal must name."""
    old, new, named = HOSTILE[request.param]
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    assert text.count(old) == 1
    (pipeline / "params.yaml").write_text(text.replace(old, new), encoding="utf-8")
    return named


@pytest.mark.parametrize("hostile", ["scale", "grid.config", "grid.seed"], indirect=True)
def test_no_parameter_reaches_a_shell(pipeline, hostile):
    """Those that dvc.yaml interpolates, into commands and paths."""
    done = subprocess.run(
        (sys.executable, "-m", "dvc", "repro", "dvc.yaml"),
        cwd=pipeline, env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode
    assert re.search(rf"error: params.yaml: .*{re.escape(hostile)}", done.stdout + done.stderr)
    assert not list(pipeline.rglob("pwned"))


@pytest.mark.parametrize("hostile", HOSTILE, indirect=True)
def test_hostile_names_and_seeds_are_refused(pipeline, hostile):
    with pytest.raises(UserError, match=re.escape(hostile)):
        params.load(pipeline / "params.yaml")


def test_a_folder_may_have_any_name(tmp_path):
    toy = Toy.create(tmp_path / f"a b 'c' {EVIL}".replace("/", ""))
    toy.sweep("check", "prepare")
    refused = toy.sweep(EVIL, status=1)
    assert refused.startswith(f"error: {EVIL}: no such stage in dvc.yaml")
    assert not list(tmp_path.rglob("pwned"))


# -- secrets ---------------------------------------------------------------------------------------


def test_no_secret_is_committed():
    assert SECRETS.search("    secret_access_key = x")
    listed = subprocess.run(
        ("git", "ls-files", "-z"), cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.is_file() and path != Path(__file__):
            text = path.read_text(encoding="utf-8", errors="replace")
            assert not SECRETS.search(text), name
    assert "/config.local" in (ROOT / ".dvc/.gitignore").read_text(encoding="utf-8").splitlines()


def test_no_secret_is_logged_or_recorded(root, monkeypatch):
    for name in ("AWS_SECRET_ACCESS_KEY", "DVC_STUDIO_TOKEN", "OMP_SECRET", "GIT_TOKEN"):
        monkeypatch.setenv(name, "hush-hush")
    monkeypatch.setenv("HOSTNAME", "our-host")
    environment.write_record(paths.trial().metrics, torch.device("cpu"), 1.0, 0)
    written = [path.read_text() for path in root.rglob("*.json")]
    assert len(written) == 2
    assert not any("hush" in text or "our-host" in text for text in written)


def test_a_clone_for_a_job_has_no_credentials(tmp_path):
    toy = Toy.create(tmp_path / "toy")
    toy.dvc("remote", "add", "-d", "lab", "s3://bucket/path")
    toy.dvc("remote", "modify", "--local", "lab", "secret_access_key", "hush-hush")
    slurm.make_clone(toy.root, "train@nanogpt", "/cache")
    clone = slurm.clone_of(toy.root, "train@nanogpt")
    assert (clone / ".dvc/config").read_text() == (toy.root / ".dvc/config").read_text()
    texts = [path.read_bytes() for path in clone.rglob("*") if path.is_file()]
    assert not any(b"hush" in text for text in texts)
    assert (clone / ".dvc/config.local").read_text() == "[cache]\n    dir = /cache\n"
