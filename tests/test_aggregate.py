import csv
import json
import re
import shlex

import pytest
from ruamel.yaml import YAML

import fake_runs
from fake_runs import change_run, make
from resablate import paths, results
from resablate.errors import UserError
from resablate.results import RunKey
from resablate.stages import aggregate

HAND = {"full": (2.0, 2.1, 2.2), "attn_only": (2.4, 2.5, 2.9)}


def table(number):
    """Return a written table's cells by id, and its markdown."""
    with (paths.TABLES / f"table{number}.csv").open(newline="", encoding="utf-8") as file:
        cells = {row["id"]: row for row in csv.DictReader(file)}
    return cells, (paths.TABLES / f"table{number}.md").read_text(encoding="utf-8")


def key(config, seed, impl="residualgpt"):
    return RunKey("tiny", impl, config, seed)


def nothing_written():
    return not (paths.RUNS_CSV.exists() or paths.SUMMARY.exists() or paths.TABLES.exists())


def test_runs_csv_has_a_row_a_cell_in_the_grids_order_and_full_floats(root):
    cells = make(root)
    aggregate.main()
    header, first, *rest = paths.RUNS_CSV.read_text().splitlines()
    assert header.startswith(
        "stage,scale,impl,config,arm,seed,status,best_val_loss,best_step,final_val_loss,"
        "full_val_loss,bits_per_byte,perplexity,n_params,steps,"
    )
    assert first.startswith(
        "train@tiny-residualgpt-full-1337,tiny,residualgpt,full,residualgpt-full,1337"
    )
    assert len(rest) == 23
    runs = results.read_runs(paths.RUNS_CSV)
    assert [run.key for run in runs] == cells
    written = json.loads(cells[0].paths("main").metrics.read_text())
    for name in results.MEASURES:
        assert runs[0][name] == written[name]
        assert type(runs[0][name]) is type(written[name])


def test_table_3_by_hand(root):
    for run in make(root):
        if run.impl == "residualgpt" and run.config in HAND:
            best = HAND[run.config][(1337, 42, 123).index(run.seed)]
            change_run(root, run, best_val_loss=best, bits_per_byte=2 * best)
    aggregate.main()
    cells, _ = table(3)
    expected = {
        "best_val_loss": "2.6000 ± 0.2646",  # sqrt((.04 + .01 + .09) / 2)
        "interval": "[1.9428, 3.2572]",  # 4.302653 * .264575 / sqrt(3) = .657244
        "n": "3",
        "perplexity": "13.46",  # exp(2.6)
        "ratio_to_full": "1.24×",  # 2.6 / 2.1
        "to_floor": "-0.7473",  # 2.6 - 3.3473
        "bits_per_byte": "5.2000",
        # differences .4, .4, .7: mean .5, half 4.302653 * sqrt(.03) / sqrt(3) = .430265; over 2.1
        "gap_to_full": "+23.8% [+3.3%, +44.3%]",
    }
    assert {name: cells[f"T3.attn_only.{name}"]["printed"] for name in expected} == expected
    best = cells["T3.attn_only.best_val_loss"]
    assert float(best["value"]) == pytest.approx(2.6, abs=1e-15)
    assert (best["n"], best["unit"]) == ("3", "nats/token")
    assert cells["T3.full.gap_to_full"]["printed"] == "baseline"
    gap = json.loads(paths.SUMMARY.read_text())["tiny"]["residualgpt"]["attn_only"]["gap_to_full"]
    assert gap == pytest.approx(0.5)


def test_table_3_derives_what_the_papers_text_derives(root):
    for run in make(root, impl=["residualgpt"], config=["attn_only", "ffn_only", "no_res"]):
        i = (1337, 42, 123).index(run.seed)
        best = {"attn_only": 1.0 + 0.4 * i, "ffn_only": 2.8 + 0.1 * i, "no_res": 2.9 + 0.1 * i}
        change_run(root, run, best_val_loss=best[run.config])
    aggregate.main()
    cells, _ = table(3)
    assert cells["T3.ffn_attn_ratio.value"]["printed"] == "2.07×"  # 2.9 / 1.4
    assert cells["T3.no_res_minus_ffn.value"]["printed"] == "+0.1000"
    assert cells["T3.no_res_minus_ffn.interval"]["printed"] == "[+0.1000, +0.1000]"
    assert cells["T3.std_ratio.value"]["printed"] == "4.00×"  # .4 / .1
    assert cells["T3.attn_only.gap_to_full"]["printed"] == "—"  # Full is not in the grid
    assert cells["T3.tiny.ngram_2"]["printed"] == "2.4862"


@pytest.mark.parametrize("number", [2, 3, 5])
def test_markdown_shows_exactly_the_cells_and_ids_are_unique(root, number):
    make(root)
    aggregate.main()
    with (paths.TABLES / f"table{number}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({row["id"] for row in rows}) == len(rows) > 15
    assert all(row["id"] == f"{row['table']}.{row['row']}.{row['column']}" for row in rows)
    _, text = table(number)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    headers = re.compile(r"\| (Configuration|Derived|Reference|Scale|Paper)")
    body = [line for line in lines if not headers.match(line)]
    shown = [cell.strip() for line in body for cell in line.strip("|").split("|")[1:]]
    assert shown == [row["printed"] for row in rows]
    for row in rows:  # the rounding rule under the table
        if row["unit"] == "nats/token" and row["std"] and row["column"] != "reported":
            assert row["printed"] == f"{float(row['value']):.4f} ± {float(row['std']):.4f}"
    assert "Rounded here only" in text
    assert "minimum over a run's evaluations" in text


def test_a_diverged_run_is_counted_and_named_and_is_in_no_mean(root):
    make(root)
    for run, best in ((key("attn_only", 1337), 2.4), (key("attn_only", 123), 2.6)):
        change_run(root, run, best_val_loss=best)
    lost = {"status": "diverged", "final_val_loss": None, "diverged_at": 150, "best_val_loss": 9.0}
    change_run(root, key("attn_only", 42), **lost)
    aggregate.main()
    cells, text = table(3)
    assert cells["T3.attn_only.best_val_loss"]["printed"] == "2.5000 ± 0.1414"
    assert cells["T3.attn_only.n"]["printed"] == "2 of 3, 1 diverged"
    assert cells["T3.attn_only.gap_to_full"]["n"] == "2"
    assert cells["T3.full.n"]["printed"] == "3"
    assert (
        "Diverged, counted, in no mean: `train@tiny-residualgpt-attn_only-42` (step 150)." in text
    )
    assert "12 runs planned, 11 finished, 1 diverged" in text
    arm = json.loads(paths.SUMMARY.read_text())["tiny"]["residualgpt"]["attn_only"]
    assert (arm["n_planned"], arm["n_finished"], arm["n_diverged"]) == (3, 2, 1)


def test_an_arm_without_a_finished_run_prints_dashes_and_null(root):
    for run in make(root, seed=[1337], config=["full", "attn_only"]):
        if run.config == "attn_only":
            nothing = dict.fromkeys(("best_val_loss", "best_step", "final_val_loss"))
            change_run(root, run, status="diverged", diverged_at=0, **nothing)
    aggregate.main()
    cells, _ = table(3)
    assert cells["T3.attn_only.best_val_loss"]["printed"] == "—"
    assert cells["T3.attn_only.n"]["printed"] == "0 of 1, 1 diverged"
    assert json.loads(paths.SUMMARY.read_text())["tiny"]["nanogpt"]["attn_only"]["std"] is None


def test_one_seed_has_no_spread(root):
    make(root, seed=[7])
    aggregate.main()
    cells, _ = table(2)
    assert cells["T2.full.best_val_loss"]["printed"].endswith(" ± —")
    assert cells["T2.full.interval"]["printed"] == "—"
    assert json.loads(paths.SUMMARY.read_text())["tiny"]["nanogpt"]["full"]["std"] is None


def test_a_grid_without_nanogpt_says_so_and_a_second_scale_has_its_own_floor(root):
    make(root, scale=["tiny", "tiny_owt"], impl=["residualgpt"], seed=[1])
    aggregate.main()
    assert "nanoGPT is not in the grid." in table(2)[1]
    assert table(2)[0] == {}
    cells, text = table(5)
    assert cells["T5.tiny_owt.residualgpt.floor"]["printed"] == "6.9000"
    assert cells["T5.tiny_owt.ngram_4"]["printed"] == "—"
    assert "tiny OWT stand-in, ResidualGPT" in text


@pytest.mark.parametrize("which", ["metrics", "curve"])
def test_a_missing_file_is_named_with_the_command_that_makes_it(root, which):
    cells = make(root)
    path = getattr(cells[5].paths("main"), which)
    path.unlink()
    with pytest.raises(UserError) as error:
        aggregate.main()
    assert str(path) in str(error.value)
    assert str(error.value).endswith(
        "make them with: dvc repro train@tiny-residualgpt-attn_only-123"
    )
    assert nothing_written()


def test_a_removed_seed_is_refused_and_the_named_command_mends_it(root):
    make(root)
    fake_runs.write_params(root, seed=[1337, 123])
    with pytest.raises(UserError, match="16 files belong to no run") as error:
        aggregate.main()
    assert nothing_written()
    command = shlex.split(str(error.value).split("remove them with: ")[1])
    assert command[0] == "rm"
    assert {"/42." in path for path in command[1:]} == {True}
    for path in command[1:]:
        (root / path).unlink()
    aggregate.main()
    assert len(results.read_runs(paths.RUNS_CSV)) == 16


def test_hidden_files_beside_the_runs_are_not_runs(root):
    cells = make(root, seed=[1])
    cells[0].paths("main").metrics.with_name(".gitignore").write_text("/1.json\n")
    aggregate.main()
    assert len(results.read_runs(paths.RUNS_CSV)) == 8


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ('"final_val_loss": NaN', "holds NaN"),
        ('"final_val_loss": -Infinity', "holds -Infinity"),
        ('"final_val_loss": 1e999', "final_val_loss: inf must be a number"),
        ('"final_val_loss": "2.1"', "final_val_loss: '2.1' must be a number"),
        ('"final_val_loss": null', "a finished run must have"),
        ('"final": 2.1', "lacks final_val_loss"),
        ('"final_val_loss" 2.1', "not JSON"),
    ],
)
def test_a_broken_run_file_is_refused_by_name(root, damage, message):
    path = make(root, seed=[1])[0].paths("main").metrics
    path.write_text(re.sub(r'"final_val_loss": [^,]*', damage, path.read_text()))
    with pytest.raises(UserError, match=message) as error:
        aggregate.main()
    assert str(error.value).startswith(str(path))
    assert "dvc repro -f -s train@tiny-residualgpt-full-1" in str(error.value)
    assert nothing_written()


def test_an_unknown_status_is_refused(root):
    run = make(root, seed=[1])[0]
    change_run(root, run, status="running")
    with pytest.raises(UserError, match="status: 'running' must be finished or diverged"):
        aggregate.main()


def test_a_missing_data_document_names_its_stage(root):
    make(root, seed=[1])
    paths.data_document("shakespeare").unlink()
    with pytest.raises(UserError, match="dvc repro prepare_shakespeare"):
        aggregate.main()


def test_escape_step_is_the_first_evaluation_clearly_below_the_floor():
    losses = [4.0, 3.3, 3.201, 3.199, 3.3, 2.0]
    curve = {"step": [0.0, 50.0, 100.0, 150.0, 200.0, 250.0], "val_loss": losses}
    assert results.escape_step(curve, 3.3) == 150
    assert results.escape_step(curve, 2.0) is None
    assert results.escape_step({"step": [0.0], "val_loss": [float("nan")]}, 3.3) is None


def test_the_stage_tracks_every_parameter_that_its_tables_set_beside_the_papers():
    load = YAML(typ="safe", pure=True).load
    stage = load((fake_runs.REPOSITORY / "dvc.yaml").read_text())["stages"]["aggregate"]
    assert stage["params"] == ["grid", "base", "scales", "impls", "configs"]
