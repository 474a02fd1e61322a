"""The follower of runs at work: its table, and TensorBoard's files."""

import argparse
import csv
import io
import sys
from pathlib import Path

import pytest

from resablate import live, paths, runs
from resablate.errors import UserError
from toys import toy_run

NAME = "tiny-residualgpt-full-3"
ROWS = [
    {"step": 0, "lr": 0.0, "train_loss": None, "val_loss": 4.125, "grad_norm_block0": 2.0},
    {"step": 4, "lr": 0.001, "train_loss": 3.5, "val_loss": 3.25, "grad_norm_block0": 1.0},
    {"step": 8, "lr": 0.0005, "train_loss": 3.0, "val_loss": 3.0, "grad_norm_block0": 0.123456789},
]


def state(key="k" * 32):
    return Path(f".resume/{key}.state")


def grow(n, name=NAME, key="k" * 32):
    """Let a run have n rows so far, as `runs.execute` writes them."""
    writer = runs.Live(name, toy_run(steps=8), state(key))
    writer.write(ROWS[:n])
    return writer


def look(capsys, *arguments):
    """Return the lines that one look prints."""
    parser = argparse.ArgumentParser()
    live.configure(parser)
    assert live.main(parser.parse_args(["--once", *arguments])) == 0
    return capsys.readouterr().out.splitlines()


def test_the_table_grows_with_the_curve(root, capsys):
    assert look(capsys) == ["no run is at work here, or none has been evaluated yet"]
    grow(1)
    grow(2, "trial tiny-nanogpt-full-3", "m" * 32)
    head, first, second = look(capsys)
    assert head.split() == ["run", *live.COLUMNS]
    assert first.split() == [NAME, "0/8", "-", "4.125", "0", "2"]
    assert second.split() == ["trial", "tiny-nanogpt-full-3", "4/8", "3.5", "3.25", "0.001", "1"]
    grow(3)
    assert look(capsys)[1].split() == [NAME, "8/8", "3", "3", "0.0005", "0.12346"]


def test_a_file_that_is_no_curve_is_passed_over(root, capsys):
    grow(1)
    Path(".resume/x.csv").write_text("step,val_loss\n0,1.0\n")
    Path(".resume/y.csv").write_text("")
    Path(".resume/y.json").write_text("{")
    assert len(look(capsys)) == 2


def test_a_queued_experiment_is_seen_from_its_own_folder_too(root, monkeypatch, capsys):
    grow(1)
    copy = root / ".dvc/tmp/exps/tmpx"
    copy.mkdir(parents=True)
    monkeypatch.chdir(copy)
    assert look(capsys)[1].split()[0] == NAME


def events(folder):
    """Return (step, value) of each series that TensorBoard reads."""
    loading = "tensorboard.backend.event_processing.event_accumulator"
    accumulator = pytest.importorskip(loading).EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_gets_each_row_once_and_the_last_ones_of_an_ended_run(root):
    pytest.importorskip("tensorboard", reason="TensorBoard is an extra (requirements-live.lock)")
    mirror = live.Mirror(Path("logs"))
    writer = grow(1)
    mirror.update(live.at_work())
    grow(2)
    mirror.update(live.at_work())
    mirror.update(live.at_work())
    (folder,) = Path("logs").iterdir()
    assert folder.name == f"{NAME}-kkkkkkkk"
    assert events(folder)["val_loss"] == [(0, 4.125), (4, 3.25)]
    # The run ends between two looks, with one more row.
    text = io.StringIO()
    rows = csv.DictWriter(text, ROWS[0])
    rows.writeheader()
    rows.writerows(ROWS)
    outs = paths.run("main", "tiny", "residualgpt-full", 3)
    outs.curve.parent.mkdir(parents=True)
    outs.curve.write_text(text.getvalue())
    for file in writer.files:
        file.unlink()
    mirror.update(live.at_work())
    mirror.close()
    found = events(folder)
    assert found["val_loss"] == [(0, 4.125), (4, 3.25), (8, 3.0)]
    assert found["train_loss"] == [(4, 3.5), (8, 3.0)]
    # A follower that is started again replaces what the first has written.
    grow(2)
    again = live.Mirror(Path("logs"))
    again.update(live.at_work())
    again.close()
    assert events(folder)["val_loss"] == [(0, 4.125), (4, 3.25)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_hostile_name_writes_nothing_outside_of_the_folder(root):
    pytest.importorskip("tensorboard", reason="TensorBoard is an extra (requirements-live.lock)")
    grow(1, "../../evil/$(touch x)")
    mirror = live.Mirror(root / "logs")
    mirror.update(live.at_work())
    mirror.close()
    (folder,) = (root / "logs").iterdir()
    assert folder.name == ".._.._evil_touch_x_-kkkkkkkk"
    assert {path.name for path in root.iterdir()} == {"logs", ".resume"}


def test_without_tensorboard_one_line_says_how_to_get_it(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"pip install -r requirements-live\.lock"):
        live.Mirror(Path("logs"))
