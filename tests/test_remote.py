"""Shared remotes with real DVC: a folder with two users, and an OpenSSH server on loopback."""

import grp
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from resablate import remote
from resablate.errors import UserError
from servers import sshd, wait_until
from toy import ENVIRONMENT, Toy

OUTS = ["data/tokens", "metrics/runs", "metrics/summary.json", "metrics/trial"]
GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A repository in which all has run and everything is committed."""
    toy = Toy.create(tmp_path_factory.mktemp("remote") / "finished")
    toy.dvc("repro")
    toy.events()
    toy.run(*GIT, "add", "-A")
    toy.run(*GIT, "commit", "-qm", "start")
    return toy


@pytest.fixture
def toy(finished, tmp_path):
    return finished.copy(tmp_path / "toy")


@pytest.fixture(params=["folder", "ssh"])
def url(request, tmp_path, monkeypatch):
    """An empty remote of each kind; its objects lie in tmp_path/remote."""
    if request.param == "folder":
        yield str(tmp_path / "remote")
        return
    with ssh(tmp_path, monkeypatch) as url:
        yield url


@pytest.fixture
def server(tmp_path, monkeypatch):
    with ssh(tmp_path, monkeypatch) as url:
        yield url


@contextmanager
def ssh(tmp_path, monkeypatch, options=""):
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    with sshd(folder, options) as (server, variables), monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setitem(ENVIRONMENT, name, value)
        yield f"{server}{tmp_path}/remote"


def resablate(toy, *arguments, status=0):
    """Run a command; return all that it printed."""
    done = subprocess.run(
        (sys.executable, "-m", "resablate", *arguments),
        cwd=toy.root, env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def dvc_fails(toy, *arguments):
    """Run a DVC command that must fail; return what it said."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        toy.dvc(*arguments)
    return caught.value.stderr


def share(toy, url):
    """Add the remote, send everything, commit."""
    resablate(toy, "remote", "add", url)
    toy.dvc("push", "--run-cache")
    toy.run(*GIT, "commit", "-qam", "remote")


def clone(toy, folder):
    """Return a colleague's clone."""
    copy = Toy(folder)
    copy.side.mkdir(parents=True)
    toy.run("git", "clone", "-q", str(toy.root), str(copy.root))
    return copy


def contents(toy):
    files = (path for out in OUTS for path in (toy.root / out, *(toy.root / out).glob("*")))
    files = (path for path in files if path.is_file() and path.name != ".gitignore")
    return {str(path.relative_to(toy.root)): path.read_text() for path in files}


def stored(tmp_path, text):
    """Return the object of the remote that holds a text."""
    found = [path for path in (tmp_path / "remote/files").rglob("*") if path.is_file()]
    (path,) = (path for path in found if path.read_text().startswith(text))
    return path


def test_a_fresh_clone_is_current_without_training_and_reruns_only_what_changed(toy, url, tmp_path):
    share(toy, url)
    config = (toy.root / ".dvc/config").read_text()
    assert "remote = lab" in config
    assert "verify = true" in config
    copy = clone(toy, tmp_path / "copy")
    copy.dvc("pull")
    assert copy.dvc("status") == "Data and pipelines are up to date.\n"
    assert contents(copy) == contents(toy)
    assert len(contents(copy)) == 5
    assert copy.began() == []
    copy = clone(toy, tmp_path / "second")
    params = copy.root / "params.yaml"
    text = params.read_text()
    assert text.count("  nanogpt:\n") == 1
    params.write_text(text.replace("  nanogpt:\n", "  nanogpt:\n    accumulation: 2\n"))
    copy.dvc("repro", "--pull", "--allow-missing")
    assert copy.began() == ["aggregate", "figures", "nanogpt"]


def test_damaged_and_missing_objects_are_named_refused_and_mended(toy, url, tmp_path):
    share(toy, url)
    assert "lab: 4 of 4 objects are there and whole" in resablate(toy, "remote", "check")
    damaged, missing = stored(tmp_path, "residualgpt"), stored(tmp_path, "nanogpt")
    damaged.chmod(0o644)
    damaged.write_text("other weights")
    missing.unlink()
    told = resablate(toy, "remote", "check", status=1).splitlines()
    oid = damaged.parent.name + damaged.name
    assert told[0].startswith(f"damaged: metrics/runs/residualgpt: object {oid}, ")
    assert told[1].startswith("missing: metrics/runs/nanogpt: object ")
    assert told[2] == "lab: 2 of 4 objects are there and whole"
    copy = clone(toy, tmp_path / "copy")
    assert missing.name in dvc_fails(copy, "pull")
    assert not (copy.root / "metrics/runs/residualgpt").exists()
    resablate(toy, "remote", "check", "--delete-damaged", status=1)
    toy.dvc("push")
    assert "lab: 4 of 4 objects are there and whole" in resablate(toy, "remote", "check")
    copy.dvc("pull")
    assert contents(copy) == contents(toy)


def test_an_interrupted_push_leaves_no_half_object(toy, server, tmp_path):
    share(toy, server)
    (toy.root / "big").write_bytes(os.urandom(1 << 20) * 150)
    toy.dvc("add", "-q", "big")
    push = subprocess.Popen(
        (sys.executable, "-m", "dvc", "push", "-q"), cwd=toy.root, env=ENVIRONMENT
    )
    wait_until(lambda: any((tmp_path / "remote").rglob("*.tmp")), "no transfer")
    push.kill()
    assert push.wait() == -signal.SIGKILL
    assert "missing: big: object " in resablate(toy, "remote", "check", status=1)
    toy.dvc("push")
    assert "lab: 5 of 5 objects are there and whole" in resablate(toy, "remote", "check")


def test_a_read_only_remote_can_be_pulled_from_and_refuses_a_push(toy, tmp_path, monkeypatch):
    with ssh(tmp_path, monkeypatch) as url:
        share(toy, url)
    with ssh(tmp_path, monkeypatch, "-R") as url:
        resablate(toy, "remote", "add", url)
        toy.run(*GIT, "commit", "-qam", "moved")
        copy = clone(toy, tmp_path / "copy")
        copy.dvc("pull")
        assert contents(copy) == contents(toy)
        (copy.root / "new").write_text("new")
        copy.dvc("add", "-q", "new")
        assert "Permission denied" in dvc_fails(copy, "push")
        assert "missing: new: " in resablate(copy, "remote", "check", status=1)
    with ssh(tmp_path, monkeypatch) as url:
        resablate(copy, "remote", "add", url)
        copy.dvc("push")


def test_two_pushing_at_once(toy, server, tmp_path):
    share(toy, server)
    toys = [toy, clone(toy, tmp_path / "copy")]
    for number, each in enumerate(toys):
        (each.root / "common").write_bytes(bytes(20_000_000))
        (each.root / "own").write_bytes(bytes([number]) * 20_000_000)
        each.dvc("add", "-q", "common", "own")
    pushes = [
        subprocess.Popen((sys.executable, "-m", "dvc", "push", "-q"), cwd=t.root, env=ENVIRONMENT)
        for t in toys
    ]
    assert [push.wait(60) for push in pushes] == [0, 0]
    for each in toys:
        assert "whole" in resablate(each, "remote", "check", status=0)


# -- two users -------------------------------------------------------------------------------------


@pytest.fixture
def lab_folder():
    """A folder that all users may enter; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def as_user(user, group, toy, *arguments, umask=0o077):
    """Run a command as a user whose umask may keep files from his group; it must succeed.

    He may read everything, for the code and Python may lie in root's home; writing is what counts.
    """
    caps = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--clear-groups")
    done = subprocess.run(
        ("setpriv", f"--reuid={user}", f"--regid={group}", *caps, sys.executable, "-m", *arguments),
        cwd=toy.root, umask=umask,
        env=ENVIRONMENT | {"HOME": str(toy.root.parent), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_two_users_of_a_group_share_a_folder(finished, lab_folder):
    if os.geteuid() or not shutil.which("setpriv"):
        pytest.skip("only root can act as two users, with setpriv (Debian: util-linux)")
    users, group = ("daemon", "nobody"), grp.getgrnam("users").gr_gid
    folder = lab_folder / "shared"
    folder.mkdir()
    os.chown(folder, 0, group)
    folder.chmod(0o2770)
    for number, user in enumerate(users):
        toy = finished.copy(lab_folder / user)
        own(toy.root.parent, user, group)
        as_user(user, group, toy, "resablate", "remote", "add", str(folder))
        (toy.root / "own").write_text(f"of {number}")
        as_user(user, group, toy, "dvc", "add", "-q", "own")
        as_user(user, group, toy, "dvc", "push")  # whatever his umask
        as_user(user, group, toy, "dvc", "push", "--run-cache", umask=0o002)
        assert "whole" in as_user(user, group, toy, "resablate", "remote", "check")
    for path in folder.rglob("*"):  # in the group, who can read the objects and add to folders
        assert path.stat().st_gid == group, path
        assert path.stat().st_mode & (0o070 if path.is_dir() else 0o040), path
    for user in users:
        toy = Toy(lab_folder / user)
        shutil.rmtree(toy.root / ".dvc/cache")
        as_user(user, group, toy, "dvc", "pull", "--force")
        assert contents(toy) == contents(finished)


def own(folder, user, group):
    for path in (folder, *folder.rglob("*")):
        os.chown(path, pwd.getpwnam(user).pw_uid, group)


# -- wrong and hostile remotes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ssh://me:secret@host/path", "holds a password"),
        ("s3://KEY:SECRET@bucket/path", "holds a password"),
        ("s3://KEY@bucket/path", "holds a password"),
        ("ssh://host", "with a path"),
        ("ftp://host/path", "must be a folder, ssh://HOST/PATH or s3://BUCKET/PATH"),
        ("ext::sh -c touch% /x", "must be a folder"),
    ],
)
def test_refused_urls(url, message):
    with pytest.raises(UserError, match=message) as caught:
        remote.settings(url)
    assert "secret" not in str(caught.value).lower()


@pytest.mark.parametrize(("url", "lock"), [("ssh://h/x", ""), ("s3://bucket/x", "-s3")])
def test_a_missing_package_is_named_with_the_lock_that_has_it(monkeypatch, url, lock):
    monkeypatch.setattr(remote, "find_spec", lambda name: object())
    assert remote.settings(url) == {"url": url, "verify": "true"}
    monkeypatch.setattr(remote, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=rf"pip install -r requirements{lock}\.lock"):
        remote.settings(url)
    pins = (Path(remote.__file__).parents[2] / f"requirements{lock}.lock").read_text()
    assert f"\ndvc-{url.partition(':')[0]}==" in pins


def test_what_is_not_there_is_one_line(toy, tmp_path):
    assert resablate(toy, "remote", "check", status=2).count("\n") == 1
    resablate(toy, "remote", "add", "ssh://127.0.0.1:9/x")
    printed = resablate(toy, "remote", "check", status=2)
    assert printed.startswith("error: lab: cannot be reached: ")
    assert printed.count("\n") == 1
    bad = resablate(toy, "remote", "add", "/x", "--name", "a b", status=2)
    assert bad == "error: --name: 'a b': a letter, then letters, digits, _ and - only\n"
