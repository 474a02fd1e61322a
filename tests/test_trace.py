import json
import re
import shutil
from pathlib import Path

import pytest

import fake_runs
import toy_results
from resablate import __main__ as commands
from resablate.corpora import TINYSHAKESPEARE_SHA256, TINYSHAKESPEARE_URL
from resablate.errors import UserError
from resablate.formulas import formula, rounding
from resablate.links import leaves
from resablate.provenance import Provenance, lineage
from resablate.rederive import Derivation
from resablate.results import VALUES, Result, RunKey, runs_text

ROOT = Path(__file__).parent.parent
CELL = "T3.attn_only.best_val_loss"
KEYS = {
    "id", "file", "printed", "value", "std", "n", "lo", "hi", "unit", "formula", "rounding",
    "measures", "runs_exact", "runs", "producer", "stages", "files", "sources", "environments",
    "commit", "broken",
}  # fmt: skip
# DVC's own use of pygtrie.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")


@pytest.fixture(scope="module")
def fresh(results, tmp_path_factory):
    """A fresh clone, never changed."""
    return toy_results.clone(results, tmp_path_factory.mktemp("clone") / "fresh")


@pytest.fixture
def here(results, tmp_path):
    """A copy with the runs' files."""
    return toy_results.copy(results, tmp_path / "here")


def stages_behind(found):
    return [run["stage"].removeprefix("train@tiny-residualgpt-") for run in found["runs"]]


def test_a_fresh_clone_traces_every_number(fresh):
    known = Provenance(fresh)
    assert len(known.cells) > 30
    assert "implementation.warm.best" in known.cells
    for cell in known.cells:
        found = known.lineage(cell)
        assert found["broken"] == [], cell
        assert found.keys() == KEYS
        assert json.loads(json.dumps(found)) == found
    for key, value in leaves(json.loads((fresh / "metrics/summary.json").read_text())):
        found = known.lineage(str(fresh / "metrics/summary.json"), key)
        assert (found["value"], found["broken"]) == (value, [])
        assert found["formula"], key


def test_a_cell_leads_to_its_runs_and_they_to_code_parameters_and_data(fresh):
    found = lineage(CELL, fresh)
    document = json.loads((fresh / "metrics/summary.json").read_text())
    assert found["value"] == document["tiny"]["residualgpt"]["attn_only"]["best_val_loss"]
    assert found["printed"].startswith(f"{found['value']:.4f} ± ")
    assert (found["n"], found["unit"], found["rounding"]) == (
        2, "nats/token", "4 decimals, half to even, from the full value",
    )  # fmt: skip
    assert found["formula"].startswith("mean of best_val_loss over the finished seeds ± sample sta")
    assert found["measures"] == ["best_val_loss"]
    assert stages_behind(found) == ["attn_only-1", "attn_only-2"]
    values = [run["values"]["best_val_loss"] for run in found["runs"]]
    assert sum(values) / 2 == pytest.approx(found["value"], rel=1e-15)
    assert found["runs"][0]["environment"] == "0123456789abcdef"
    assert found["environments"] == {"0123456789abcdef": {"cpu": "a processor"}}
    run = found["stages"]["train@tiny-residualgpt-attn_only-2"]
    assert run["pipeline"] == "dvc.yaml"
    assert run["command"].endswith("resablate.stages.train tiny residualgpt attn_only 2")
    params = run["parameters"]["params.yaml"]
    assert params["configs.attn_only"] == {"attn_skip": 1.0, "ffn_skip": 0.0}
    assert params["scales.tiny"]["lr"] == 0.001
    file = found["files"]["src/resablate/ops.py"]
    blob = toy_results.run(fresh, "git", "rev-parse", "HEAD:src/resablate/ops.py").strip()
    assert file == {
        "blob": blob, "md5": run["code"]["src/resablate/ops.py"], "state": "current",
        "uncommitted": False,
    }  # fmt: skip
    assert run["data"].keys() == {"data/tokens/tiny"}
    assert found["files"]["data/tokens/tiny"]["state"] == "absent"
    assert set(found["stages"]) > {"check", "prepare_shakespeare", "aggregate"}
    assert "prepare_owt" not in found["stages"]
    (source,) = found["sources"]
    assert source["document"] == "metrics/data/shakespeare.json"
    assert (source["sha256"], source["url"]) == (TINYSHAKESPEARE_SHA256, TINYSHAKESPEARE_URL)
    assert found["commit"] == toy_results.run(fresh, "git", "rev-parse", "HEAD").strip()


@pytest.mark.parametrize(
    ("target", "key", "behind", "measures"),
    [
        ("T3.full.bits_per_byte", None, "full-1 full-2", ["bits_per_byte"]),
        ("T3.full.perplexity", None, "full-1 full-2", ["best_val_loss"]),
        ("T3.full.n", None, "full-1 full-2", []),
        ("T3.attn_only.gap_to_full", None, "full-1 full-2 attn_only-1 attn_only-2",
         ["best_val_loss"]),
        ("T3.tiny.ngram_3", None, "", []),
        ("metrics/summary.json", "tiny.residualgpt.full.hidden_norm_growth", "full-1 full-2",
         ["hidden_norm_growth"]),
        ("metrics/summary.json", "tiny.residualgpt.full.n_diverged", "full-1 full-2", []),
        ("metrics/runs.csv", "train@tiny-residualgpt-full-2.perplexity", "full-2", ["perplexity"]),
        ("metrics/runs/main/tiny/residualgpt-full/2.json", "perplexity", "full-2", ["perplexity"]),
        ("metrics/tables/table3.csv", "T3.full.n", "full-1 full-2", []),
    ],
)  # fmt: skip
def test_the_runs_behind_a_number(target, key, behind, measures, fresh):
    found = Provenance(fresh).lineage(str(fresh / target) if key else target, key)
    assert stages_behind(found) == behind.split()
    assert found["measures"] == measures
    assert found["runs_exact"]


def test_numbers_without_runs_lead_to_the_data(fresh):
    found = lineage("T3.tiny.floor", fresh)
    assert found["value"] == fake_runs.FLOOR
    assert found["formula"].startswith("cross-entropy of the validation split under the unigram")
    assert "prepare_shakespeare" in found["stages"]
    assert [source["stage"] for source in found["sources"]] == ["prepare_shakespeare"]


def test_another_pipeline_whose_module_derives_nothing(fresh):
    found = lineage("implementation.warm.best", fresh)
    assert found["producer"] == "studies/dvc.yaml:implementation"
    assert not found["runs_exact"]
    assert len(found["runs"]) == 4
    params = found["stages"][found["producer"]]["parameters"]
    assert params == {"studies/params.yaml": {"grid": {"lr": [1e-05]}}}


def test_which_runs_and_measures_decide_by_hand(root):
    """A mean, a count of diverged runs and a constant, of one diverged and three finished runs."""
    values = dict.fromkeys(VALUES)
    statuses = ("finished", "diverged", "finished", "finished")
    runs = [
        Result(RunKey("tiny", "a", "b", seed), status, {**values, "best_val_loss": 1.0 + seed})
        for seed, status in enumerate(statuses)
    ]
    Path("runs.csv").write_text(runs_text(runs))

    def derive(rows):
        best = [run["best_val_loss"] for run in rows if run.status == "finished"][:2]
        diverged = sum(run.status == "diverged" for run in rows)
        return {Path("summary.json"): json.dumps({"a": best, "b": diverged, "c": 5})}

    made = Derivation(root, "runs.csv", derive)
    behind = {
        key: [row.run.key.seed for row in made.runs_behind("summary.json", key)] for key in "abc"
    }
    assert behind == {"a": [0, 2], "b": [1], "c": []}
    assert made.measures_behind("summary.json", "a") == ["best_val_loss"]
    assert made.measures_behind("summary.json", "b") == []


def test_what_changed_is_named_and_what_did_not_matter_is_not(here):
    path = here / "params.yaml"
    text = path.read_text()
    path.write_text(text.replace("seed: 1337", "seed: 7", 1))  # of the trial
    assert lineage(CELL, here)["broken"] == []
    path.write_text(text.replace("grad_clip: 1.0", "grad_clip: 2.0"))
    changed = "stale: params.yaml: base.grad_clip is 2.0, dvc.lock has 1.0 (train@"
    (broken,) = lineage(CELL, here)["broken"]
    assert broken.startswith(changed)
    path.write_text(text)
    with (here / "src/resablate/ops.py").open("a") as file:
        file.write("# edited\n")
    found = lineage(CELL, here)
    assert re.match(r"stale: src/resablate/ops.py has MD5 \w+ here, ", found["broken"][0])
    state = found["files"]["src/resablate/ops.py"]
    assert (state["state"], state["uncommitted"]) == ("changed", True)
    assert lineage("T3.tiny.floor", here)["broken"] == []


def test_digits_that_the_runs_do_not_give_break_the_link(here):
    printed = Provenance(here).cells[CELL]["printed"]
    for name in ("table3.csv", "table3.md"):
        path = here / "metrics/tables" / name
        path.write_text(path.read_text().replace(printed, "1.2345 ± 0.0001"))
    found = lineage(CELL, here)
    assert found["printed"] == "1.2345 ± 0.0001"
    broken = "\n".join(found["broken"])
    said = f"is '1.2345 ± 0.0001', the runs give '{printed}'"
    assert f"edited: metrics/tables/table3.csv: {CELL} printed {said}" in broken
    assert re.search(rf"edited: metrics/tables/table3.md: line \d+ {said}", broken)
    (here / "metrics/environments/0123456789abcdef.json").unlink()
    named = "missing: metrics/environments/0123456789abcdef.json is the environment of a run"
    assert any(broken.startswith(named) for broken in lineage(CELL, here)["broken"])
    (here / "metrics/runs.csv").write_text("stage,scale\nx\n")
    assert "metrics/runs.csv: not a table of runs (KeyError" in "\n".join(
        lineage(CELL, here)["broken"]
    )


def test_wrong_names_are_errors_with_a_hint(fresh, monkeypatch):
    monkeypatch.chdir(fresh)
    known = Provenance(Path())
    for target, key, hint in (
        ("T3.atn_only.best_val_loss", None, "no such cell (there is T3.attn_only.best_val_loss"),
        ("metrics/summary.json", "tiny.floors", "metrics/summary.json: has no tiny.floors (there "),
        ("metrics/nothing.json", "a", "no CSV or JSON file here"),
        ("studies/cells.csv", "implementation.warm.best.value", "no stage of a dvc.yaml makes it"),
    ):
        with pytest.raises(UserError, match=re.escape(hint)):
            known.lineage(target, key)


def test_digits_are_searched_as_they_are_printed(fresh):
    known = Provenance(fresh).numbers
    printed = known.cells[CELL]["printed"]
    full = printed.split()[0]
    assert CELL in [cell["id"] for cell in known.search(full)]
    assert CELL in [cell["id"] for cell in known.search(f"{float(full):.2f}")]
    assert CELL not in [cell["id"] for cell in known.search(f"{full}0")]
    assert [cell["id"] for cell in known.search("2.55")][-1] == "implementation.warm.best"
    assert known.search("12345.6") == []
    with pytest.raises(UserError, match="must be a number as a table prints it"):
        known.search("two")


def command(capsys, *arguments):
    """Return the exit status and what was printed."""
    with pytest.raises(SystemExit) as caught:
        commands.run_command(commands.main, ["trace", *arguments], status=2)
    printed = capsys.readouterr()
    return caught.value.code, printed.out + printed.err


def test_command_says_once_what_runs_share(fresh, monkeypatch, capsys):
    monkeypatch.chdir(fresh)
    monkeypatch.setenv("COLUMNS", "100")
    status, printed = command(capsys, CELL)
    assert status == 0
    lines = printed.splitlines()
    assert lines[0].startswith(f"{CELL}  2.")
    assert "python -m resablate.stages.train tiny residualgpt attn_only {1,2} " in " ".join(
        printed.split()
    )
    assert printed.count("src/resablate/ops.py") == printed.count("scales.tiny:") == 1
    assert re.search(r"^  +data/tokens/tiny  +\w{12}  not here, kept by DVC  train$", printed, re.M)
    assert lines[-1].startswith("links        all ")
    assert max(map(len, lines)) <= 115  # tables and addresses are not wrapped
    status, printed = command(capsys, CELL, "--json")
    assert (status, json.loads(printed).keys()) == (0, KEYS)
    status, printed = command(capsys, "--search", "2.55")
    assert status == 0
    assert printed.splitlines()[-1].split() == [
        "implementation.warm.best", "2.55", "nats/token", "metrics/studies/implementation.csv",
    ]  # fmt: skip
    assert command(capsys, "--search", "99999")[0] == 1


def test_command_ends_with_the_broken_links(here, monkeypatch, capsys):
    monkeypatch.chdir(here)
    shutil.copy("metrics/runs/main/tiny/residualgpt-full/1.json",
                "metrics/runs/main/tiny/residualgpt-full/2.json")  # fmt: skip
    status, printed = command(capsys, "T3.full.best_val_loss")
    assert status == 1
    assert (
        "\nBROKEN       edited: metrics/runs/main/tiny/residualgpt-full/2.json has MD5" in printed
    )
    assert command(capsys, CELL, "--search", "2")[0] == 2
    assert command(capsys)[0] == 2
    assert command(capsys, "T9")[0] == 2


def test_formulas_and_roundings():
    assert rounding("+6.4% [+4.0%, +8.8%]") == "1 decimal, half to even, from the full value"
    assert rounding("2.5763 ± 0.0233") == "4 decimals, half to even, from the full value"
    assert rounding("2 of 3, 1 diverged") == "a count, not rounded"
    assert rounding("baseline") is None
    assert formula("std_ratio", "value", []).startswith("sample standard deviation of AttnOnly")
    assert formula("tiny", "ngram_3", []).endswith("Kneser-Ney 3-gram model of the training split")
    assert formula("full", "bits_per_byte", ["bits_per_byte"]).startswith("mean of bits_per_byte")
    assert formula("full", "something", ["best_val_loss"]) is None


def test_every_cell_of_this_repository_has_a_formula():
    known = Provenance(ROOT)
    for name in known.cells:
        cell = known.lineage(name)
        if known.numbers.producer(cell["file"]).file == "dvc.yaml":
            assert cell["formula"], name
