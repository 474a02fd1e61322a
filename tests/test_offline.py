"""Cells run where no DVC is, and taken into the DAG of a toy repository."""

import argparse
import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from resablate import dag, offline
from resablate.errors import UserError
from resablate.offline import pack, take
from toy import ENVIRONMENT, ROOT
from toy_paper import CELLS, change, create
from toys import toy_tokens

# DVC's own use of pygtrie.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")
STEM = "paper-train-gpt10m-residualgpt-full-7"


def call(root, *arguments, status=0, **environment):
    """Run a command of the package in a folder; return what it printed."""
    done = subprocess.run(
        (sys.executable, "-P", "-m", "resablate", "offline", *arguments),
        cwd=root,
        env=ENVIRONMENT | {"PYTHONPATH": "src"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with `there`, where two cells ran without DVC, their `packs`, and `here`."""
    folder = tmp_path_factory.mktemp("offline")
    for name in ("there", "here"):
        create(folder / name)
    banned = folder / "banned/dvc"
    banned.mkdir(parents=True)
    (banned / "__init__.py").write_text("raise ImportError('there is no DVC here')")
    python_path = f"src:{banned.parent}"
    printed = call(
        folder / "there", "run", "--out", "../packs", "-j", "2", "gpt10m-*", PYTHONPATH=python_path
    )
    assert "2 of 2 cells are packed" in printed
    subprocess.run(("git", "init", "-q"), cwd=folder / "here", check=True)
    dvc = (sys.executable, "-m", "dvc")
    subprocess.run((*dvc, "init", "-q"), cwd=folder / "here", check=True, env=ENVIRONMENT)
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """A copy of the repository and of the packs, and the current folder."""
    for name in ("here", "packs"):
        shutil.copytree(made / name, tmp_path / name)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def refused(match, **options):
    """Take the packs, which must be refused and leave nothing."""
    asked = {"folder": Path("../packs"), "replace": False, "other_versions": False} | options
    with pytest.raises(UserError, match=match):
        take.main(argparse.Namespace(**asked))
    assert not Path("paper/dvc.lock").exists()
    assert not Path("metrics/runs").exists()


def test_packs_are_taken_and_dvc_has_nothing_left_to_do(here, made):
    assert "2 cells taken into paper/dvc.lock" in call(here, "take", "../packs")
    lock = YAML(typ="safe").load((here / "paper/dvc.lock").read_text())["stages"]
    assert list(lock) == [cell.partition(":")[2] for cell in CELLS]
    for file in ("metrics", "plots", "data/models"):
        for path in (made / "there" / file).rglob("*.*"):
            if path.is_file():
                taken = here / path.relative_to(made / "there")
                assert taken.read_bytes() == path.read_bytes()
    assert (here / "metrics/environments/runs/paper/gpt10m/residualgpt-full/7.json").is_file()
    command = (sys.executable, "-m", "dvc", "status", *CELLS)
    done = subprocess.run(
        command, cwd=here, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert "up to date" in done.stdout, done.stdout + done.stderr
    # Once more, as after a first attempt that was cut short: the same lock.
    before = (here / "paper/dvc.lock").read_bytes()
    call(here, "take", "../packs")
    assert (here / "paper/dvc.lock").read_bytes() == before


def test_parts_are_small_and_a_pack_that_is_there_is_not_made_again(made, monkeypatch, tmp_path):
    for name in ("there", "packs"):
        shutil.copytree(made / name, tmp_path / name)
    monkeypatch.chdir(tmp_path / "there")
    monkeypatch.setattr(pack, "PART_BYTES", 5000)
    cell = dag.select([CELLS[0]])[0]
    inputs = dag.inputs(cell)
    pack.write(Path("../packs"), cell, inputs)
    parts = sorted(Path("../packs").glob(f"{STEM}.part*"))
    assert len(parts) > 2
    assert all(path.stat().st_size <= 5000 for path in parts)
    manifest = pack.read(Path(f"../packs/{STEM}.json"))
    assert [part.name for part in manifest.parts] == [path.name for path in parts]
    assert not pack.damage(Path("../packs"), manifest)
    monkeypatch.setattr(pack, "PART_BYTES", 1 << 20)
    pack.write(Path("../packs"), cell, inputs)
    assert len(list(Path("../packs").glob(f"{STEM}.part*"))) == 1
    assert "2 of 2 cells are packed" in call(
        tmp_path / "there", "run", "--out", "../packs", "gpt10m-*"
    )


def test_the_limit_ends_a_run_that_goes_on_later(made, tmp_path):
    shutil.copytree(made / "there", tmp_path / "there")
    change(tmp_path / "there/params.yaml", scales__gpt10m__steps=10**6)
    arguments = ("run", "--out", "../new", "--limit", "5", CELLS[0])
    printed = call(tmp_path / "there", *arguments, status=3)
    assert "0 of 1 cells are packed" in printed
    assert "the same command goes on" in printed
    assert not list(tmp_path.glob("new/*"))


def test_a_damaged_or_missing_part_is_named(here):
    part = here.parent / f"packs/{STEM}.part000"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    refused(f"{STEM}.part000 is damaged")
    part.unlink()
    refused(f"{STEM}.part000 is missing")


@pytest.mark.parametrize("what", ["code", "params", "tokens", "versions", "cell", "manifest"])
def test_what_was_made_with_something_else_is_named(here, what):
    manifest = here.parent / f"packs/{STEM}.json"
    document = json.loads(manifest.read_text())
    if what == "code":
        with (here / "src/resablate/model.py").open("a") as file:
            file.write("# another\n")
        refused("was made with another src/resablate/model.py")
    elif what == "params":
        change(here / "params.yaml", base__beta2=0.99)
        refused("was made with another base")
    elif what == "tokens":
        toy_tokens(here / "data/tokens/gpt10m", 2100)
        refused("was made with another data/tokens/gpt10m")
    elif what == "versions":
        document["versions"]["torch"] = "2.8.0"
        manifest.write_text(json.dumps(document))
        refused("was not made with torch .*; see --other-versions")
    elif what == "cell":
        change(here / "paper/params.yaml", grid__seed=[8])
        refused(f"{CELLS[0]} is no cell of the grids here")
    else:
        document["inputs"]["dep"] = {}
        manifest.write_text(json.dumps(document))
        refused("not a manifest: inputs.dep: unknown key")


def test_an_archive_that_holds_something_else_is_refused(here):
    manifest = here.parent / f"packs/{STEM}.json"
    document = json.loads(manifest.read_text())
    evil = "metrics/environments/../../params.yaml"
    manifest.write_text(json.dumps(document | {"files": document["files"] | {evil: "0"}}))
    refused(f"{CELLS[0]} holds {evil}, which is not its own")
    # Other content under the right names, in a part whose hash has been mended.
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as tar:
        for name in document["files"]:
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
    part = here.parent / f"packs/{STEM}.part000"
    part.write_bytes(text.getvalue())
    sha256 = pack.hashlib.sha256(text.getvalue()).hexdigest()
    parts = [{"name": part.name, "sha256": sha256}]
    manifest.write_text(json.dumps(document | {"parts": parts}))
    refused("metrics/runs/paper/gpt10m/residualgpt-full/7.json is damaged")


def test_another_result_in_the_place_is_not_overwritten(here):
    out = here / "metrics/runs/paper/gpt10m/residualgpt-full/7.json"
    out.parent.mkdir(parents=True)
    out.write_text("{}")
    asked = {"folder": Path("../packs"), "replace": False, "other_versions": False}
    with pytest.raises(UserError, match=r"7\.json is here with other content; see --replace"):
        take.main(argparse.Namespace(**asked))
    assert out.read_text() == "{}"
    call(here, "take", "--replace", "../packs")
    assert out.read_text() != "{}"


def test_what_is_missing_on_the_machine_is_named(monkeypatch):
    monkeypatch.setattr(offline, "NEEDED", ("torch", "no_such", "none.such"))
    with pytest.raises(UserError, match=r"missing here: no_such, none\.such; on a machine with"):
        offline.main(argparse.Namespace(command="run"))


def test_hashes_are_those_of_dvc(made):
    lock = YAML(typ="safe").load((ROOT / "dvc.lock").read_text())["stages"]
    code = {dep["path"]: dep["md5"] for dep in lock["prepare_shakespeare"]["deps"]}
    file = ROOT / "src/resablate/tinyshakespeare_errata.tsv"
    assert dag.md5(file) == code["src/resablate/tinyshakespeare_errata.tsv"]
    assert dag.md5(ROOT / "no_such") is None
