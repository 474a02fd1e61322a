"""Where what outlives a copy of the repository lies."""

import pytest

from resablate import checkpoint, fetch, paths


@pytest.mark.parametrize("folder", [".", ".dvc/tmp/exps/tmpabc", ".dvc/tmp/exps/standalone/tmpabc"])
def test_experiment_folders_share_the_main_root(root, monkeypatch, folder):
    (root / folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(root / folder)
    assert paths.main_root() == root
    assert fetch.downloads() == root / ".downloads"
    assert checkpoint.state_path("key") == root / ".resume/key.state"
