import json
import re
import shutil
from pathlib import Path

import pytest

import toy_results
from resablate import __main__ as commands
from resablate.lockfile import load_lock
from resablate.repository import Repository
from resablate.verify import verify

ROOT = Path(__file__).parent.parent
SEEDS = r"seed:\s+- 1\s+- 2"  # in params.yaml
RUNS = "metrics/runs/main/tiny/residualgpt-attn_only"
# DVC's own use of pygtrie.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")


@pytest.fixture
def here(results, tmp_path):
    """A copy with the runs' files."""
    return toy_results.copy(results, tmp_path / "here")


@pytest.fixture
def fresh(results, tmp_path):
    """A fresh clone."""
    return toy_results.clone(results, tmp_path / "fresh")


def replace(file, old, new, count=1):
    """Return a fault: text of a file replaced."""

    def plant(root):
        text = (root / file).read_text(encoding="utf-8")
        assert re.search(old, text), (file, old)
        (root / file).write_text(re.sub(old, new, text, count=count), encoding="utf-8")

    return plant


def swap(root):
    one, two = (root / RUNS / f"{seed}.json" for seed in (1, 2))
    texts = one.read_text(), two.read_text()
    two.write_text(texts[0])
    one.write_text(texts[1])


def extra(root):
    shutil.copy(root / RUNS / "1.json", root / RUNS / "7.json")


def lock_of_run(root):
    """Edit the MD5 of a run's metrics file, where the run's stage made it."""
    entry = re.compile(rf"path: {RUNS}/1.json\n      hash: md5\n      md5: \w")
    replace("dvc.lock", entry.pattern, f"path: {RUNS}/1.json\n      hash: md5\n      md5: 0")(root)


FAULTS = {  # each: how it is planted, what must be named, whether it shows without the runs' files
    "digit in a table's markdown": (
        replace("metrics/tables/table3.md", r"\| AttnOnly \| (\d\.\d+)", r"| AttnOnly | 9.9999"),
        [r"edited: metrics/tables/table3.md: line \d+ is '9\.9999 ±.*', the runs give '2\.\d{4} ±"],
        True,
    ),
    "digit in a table's cells": (
        replace("metrics/tables/table3.csv", r"1\.\d\d×", "9.99×"),
        [r"edited: metrics/tables/table3.csv: T3\.\S+ printed is '9.99×', the runs give '1"],
        True,
    ),
    "parameter": (
        replace("params.yaml", r"lr: 1.0e-3", "lr: 2.0e-3"),
        [r"stale: params.yaml: scales.tiny.lr is 0.002, dvc.lock has 0.001 \(train@.* 5 more\)"],
        True,
    ),
    "helper": (
        replace("src/resablate/ops.py", r"\Z", "# edited\n"),
        [r"stale: src/resablate/ops.py has MD5 \w{8} here, \w{8} in dvc.lock, uncommitted \(train"],
        True,
    ),
    "removed seed": (
        replace("params.yaml", SEEDS, "seed: [1]"),
        [
            r"extra: dvc.lock has a stage that dvc.yaml no longer has \(train@tiny-\S+-2, ",
            r"stale: params.yaml: grid.seed is \[1\], dvc.lock has .1, 2. .aggregate, report",
        ],
        True,
    ),
    "added seed": (
        replace("params.yaml", SEEDS, "seed: [1, 2, 3]"),
        [
            r"stale: params.yaml: grid.seed is \[1, 2, 3\], dvc.lock has .1, 2. .aggregate, report",
            r"missing: metrics/runs.csv: train@tiny-residualgpt-full-3 has no row",
        ],
        True,
    ),
    "extra run": (
        extra,
        [rf"extra: {RUNS}/7.json is read by aggregate, and no stage makes it"],
        False,
    ),
    "swapped runs": (
        swap,
        [
            rf"edited: {RUNS}/1.json has MD5 \w+ here, \w+ in dvc.lock, which dvc checkout brings",
            r"edited: metrics/runs.csv: train@\S+-attn_only-2 best_val_loss is 2\.\d+, \S+ has 2\.",
        ],
        False,
    ),
    "row of the table of runs": (
        replace("metrics/runs.csv", r"(attn_only,1,finished),\d\.\d", r"\1,1.9"),
        [
            r"edited: metrics/runs.csv has MD5 \w+ here, \w+ in dvc.lock, uncommitted \(aggregate",
            r"edited: metrics/tables/table3.csv: T3.attn_only.best_val_loss printed is ",
        ],
        True,
    ),
    "removed row": (
        replace("metrics/runs.csv", r"train@\S+-attn_only-2,.*\n", ""),
        [r"missing: metrics/runs.csv: train@tiny-residualgpt-attn_only-2 has no row in it"],
        True,
    ),
    "summary": (
        replace("metrics/summary.json", r'"gap_to_full": 0\.[1-9]', '"gap_to_full": 0.7'),
        [r"edited: metrics/summary.json: tiny.residualgpt.attn_only.gap_to_full is 0.7"],
        True,
    ),
    "figure": (
        replace("plots/figure2.svg", "2", "3"),
        [r"edited: plots/figure2.svg has MD5 \w+ here, \w+ in dvc.lock, uncommitted \(figures\)"],
        True,
    ),
    "MD5 in dvc.lock": (
        lock_of_run,
        [r"stale: metrics/runs/main was made as \w{8} and read as \w{8}"],
        True,
    ),
    "command": (
        replace("dvc.yaml", "resablate.stages.aggregate", "resablate.stages.aggregate --x"),
        [r"stale: dvc.yaml has the command `PYTHONPATH=src \S+ -m \S+aggregate --x`,"],
        True,
    ),
    "dependency": (
        replace("dvc.yaml", r"      - src/resablate/rng.py\n", ""),
        [r"stale: dvc.lock has the dependency src/resablate/rng.py, dvc.yaml has not \(train@"],
        True,
    ),
    "lost table": (
        lambda root: (root / "metrics/tables/table5.md").unlink(),
        [r"missing: metrics/tables/table5.md is not here, and the runs give it \(aggregate\)"],
        True,
    ),
    "table of another time": (
        lambda root: shutil.copy(root / "metrics/runs.csv", root / "metrics/tables/table4.csv"),
        [r"extra: metrics/tables/table4.csv is no file that the runs give \(aggregate\)"],
        True,
    ),
    "unreadable table of runs": (
        replace("metrics/runs.csv", r"finished,\d\.", "finished,x"),
        [r"edited: metrics/runs.csv gives no tables: UserError: .*could not convert"],
        True,
    ),
    "another pipeline's parameter": (
        replace("studies/params.yaml", "1e-5", "1e-4"),
        [r"stale: studies/params.yaml: grid.lr is \[0.0001\], dvc.lock has \[1e-05"],
        True,
    ),
}


def test_results_hold_and_it_says_what_was_checked(here, fresh):
    report = verify(here)
    assert report.faults == []
    assert "11 stages of dvc.yaml against dvc.lock" in report.checked
    assert "1 stage of studies/dvc.yaml against studies/dvc.lock" in report.checked
    assert "4 rows of metrics/runs.csv against the runs' own files" in report.checked
    report = verify(fresh)
    assert report.faults == []
    assert "0 rows of metrics/runs.csv against the runs' own files" in report.checked
    missing = "4 of 4 rows of metrics/runs.csv: the runs' files are not here (dvc pull)"
    assert missing in report.unchecked


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name, here, fresh):
    plant, expected, shows_without_runs = FAULTS[name]
    for root in (here, fresh) if shows_without_runs else (here,):
        plant(root)
        faults = verify(root).faults
        for pattern in expected:
            assert [fault for fault in faults if re.match(pattern, fault)], (pattern, faults)


def test_part_of_the_runs_is_compared(here):
    for seed in (1, 2):
        (here / RUNS / f"{seed}.json").unlink()
    report = verify(here)
    assert report.faults == []
    assert "2 rows of metrics/runs.csv against the runs' own files" in report.checked
    replace("metrics/runs.csv", r"(full,1,finished,[\d.]+),\d+", r"\1,7")(here)
    found = [fault for fault in verify(here).faults if "best_step is 7" in fault]
    assert [fault.rpartition("/")[2] for fault in found] == ["1.json has 600", "1.csv has 600"]


def test_a_curve_must_bear_out_its_run(here):
    replace("plots/curves/main/tiny/residualgpt-full/1.csv", r"\n600,0.001,[\d.]+,[\d.]+", "")(here)
    faults = "\n".join(verify(here).faults)
    assert "residualgpt-full-1 best_step is 600, plots/curves/main/" in faults


def test_many_differences_in_one_file_are_counted(here):
    replace("metrics/summary.json", r'": 2\.', '": 3.', count=0)(here)
    faults = [fault for fault in verify(here).faults if "metrics/summary.json: " in fault]
    assert len(faults) == 7  # its hash against dvc.lock is the eighth line
    assert any(re.match(r"edited: metrics/summary.json differs in \d+ more places", fault)
               for fault in verify(here).faults)  # fmt: skip


def test_full_runs_the_stages_again_in_a_scratch_folder(here):
    before = {path: path.stat().st_mtime_ns for path in here.glob("metrics/**/*")}
    report = verify(here, full=True)
    assert "aggregate, run again: every out byte for byte" in report.checked
    drawn = [fault for fault in report.faults if "when the stage is run again" in fault]
    assert len(drawn) == len(report.faults) == 9, report.faults  # the toy's are no drawings
    assert drawn[0] == "edited: plots/figure1.png is another when the stage is run again (figures)"
    assert before == {path: path.stat().st_mtime_ns for path in here.glob("metrics/**/*")}


def command(capsys, *arguments):
    """Return the exit status and what was printed."""
    with pytest.raises(SystemExit) as caught:
        commands.run_command(commands.main, ["verify", *arguments], status=2)
    printed = capsys.readouterr()
    return caught.value.code, printed.out + printed.err


def test_command_and_exit_status(here, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(here)
    status, printed = command(capsys)
    assert status == 0
    assert printed.splitlines()[-1] == "all holds"
    replace("plots/figure2.svg", "2", "3")(here)
    status, printed = command(capsys)
    assert status == 1
    assert "all holds" not in printed
    assert printed.splitlines()[-1].startswith("edited: plots/figure2.svg ")
    status, printed = command(capsys, "--json")
    assert status == 1
    assert json.loads(printed).keys() == {"faults", "checked", "unchecked"}
    monkeypatch.chdir(tmp_path)
    for path in tmp_path.glob("*/**/dvc.yaml"):
        path.unlink()
    status, printed = command(capsys)
    assert status == 2
    assert printed.endswith("no stages; go to the repository's root\n")
    (here / "dvc.lock").write_text("stages: [")
    (here / "dvc.yaml").write_text("stages: {}")
    status, printed = command(capsys)
    assert status == 2
    assert "not a dvc.lock" in printed


def test_lock_files_are_read_as_dvc_reads_them(results, tmp_path):
    from dvc.utils.serialize import load_yaml  # noqa: PLC0415

    locks = [root / file for root in (ROOT, results) for file in ("dvc.lock", "studies/dvc.lock")]
    for lock in locks:
        assert load_lock(lock) == load_yaml(str(lock))["stages"]
    tricky = "1e-05 yes 1e-5 '1' ~ true -3 .5 off 1:30 6e-4 0.0 '' .inf 10."
    lines = "".join(f"  k{i}: {value}\n" for i, value in enumerate(("", *tricky.split())))
    path = tmp_path / "dvc.lock"
    path.write_text(f"stages:\n{lines}")
    assert load_lock(path) == load_yaml(str(path))["stages"]


def test_hashes_are_those_of_dvc(results):
    repository = Repository(results)
    locked = [stage.locked for stage in repository.stages.values()]
    hashes = {path: md5 for of in locked for path, md5 in (*of.deps.items(), *of.outs.items())}
    assert len(hashes) > 60
    assert {path: repository.files.md5(path) for path in hashes} == hashes


def test_this_repository_holds():
    report = verify(ROOT)
    assert report.faults == []
