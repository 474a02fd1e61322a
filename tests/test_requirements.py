"""The lock files: exact versions, sorted, complete, and those that are installed here."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
FILES = ("requirements.lock", "requirements-numerics.lock")
GPU = re.compile(r"nvidia-|cuda-|triton")  # pinned by torch itself, where it comes with CUDA


def pins(name: str) -> list[tuple[str, str]]:
    """Return (package, version) of a lock file's lines, which must all be exact."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if line and not line.startswith(("#", "-r "))]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in found)
    return [tuple(line.split("==")) for line in found]


@pytest.fixture(scope="module")
def locked():
    return {canonicalize_name(p): version for name in FILES for p, version in pins(name)}


@pytest.mark.parametrize("name", FILES)
def test_versions_are_exact_sorted_and_named_once(name):
    packages = [package.lower() for package, _ in pins(name)]
    assert packages == sorted(set(packages))


def test_what_the_project_needs_is_locked(locked):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    direct = project["dependencies"] + project["optional-dependencies"]["dev"]
    assert {canonicalize_name(Requirement(line).name) for line in direct} <= locked.keys()


def test_what_locked_packages_need_is_locked_at_a_version_that_they_take(locked):
    for package, version in locked.items():
        try:
            here = metadata.distribution(package)
        except metadata.PackageNotFoundError:
            pytest.skip(f"{package} is not installed: not the environment that make sets up")
        assert here.version.partition("+")[0] == version, package
        for line in here.requires or ():
            needed = Requirement(line)
            if needed.marker and not needed.marker.evaluate({"extra": ""}):
                continue
            name = canonicalize_name(needed.name)
            if not GPU.match(name):
                assert needed.specifier.contains(locked[name], prereleases=True), (package, line)
