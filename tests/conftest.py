import pytest


@pytest.fixture
def root(tmp_path, monkeypatch):
    """An empty repository root, and the current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
