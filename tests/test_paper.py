"""The paper's pipeline: grids, tables and figures over runs of which most are not there."""

import csv
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import fake_runs
from fake_runs import REPOSITORY
from resablate import paper, params, reported, results
from resablate.errors import UserError
from resablate.paper import PaperKey
from resablate.report import contents, path, views
from resablate.stages import paper_aggregate, paper_check, paper_figures, paper_report
from test_report import FIGURE, FakeProvenance, Outline
from toy import ENVIRONMENT

SEEDS = (1337, 42, 123)


class Placed(PaperKey):
    """A cell whose fake files are written where this pipeline looks for them."""

    def paths(self, pipeline):
        return super().paths(paper.PIPELINE)


def key(config, seed, impl="residualgpt", scale="gpt10m"):
    return Placed(scale, impl, config, seed)


def write_grids(root, **changes):
    """Write both parameter files; `grid__seed=[1]` sets an axis."""
    yaml = YAML()
    (root / "paper").mkdir(exist_ok=True)
    for name in ("params.yaml", "paper/studies.yaml"):
        (root / name).write_text((REPOSITORY / name).read_text())
    content = yaml.load((REPOSITORY / "paper/params.yaml").read_text())
    for name, value in changes.items():
        section, _, axis = name.partition("__")
        if axis:
            content[section][axis] = value
        else:
            content[section] = value
    with (root / "paper/params.yaml").open("w") as file:
        yaml.dump(content, file)


def copy_registry(root):
    (root / reported.REGISTRY).parent.mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / reported.REGISTRY, root / reported.REGISTRY)


@pytest.fixture
def written(root):
    """Three seeds of two configurations of ResidualGPT at 10M, no run at 124M."""
    write_grids(root)
    fake_runs.write_data(root, "shakespeare")
    copy_registry(root)
    for config in ("full", "attn_only"):
        for seed in SEEDS:
            fake_runs.write_run(root, key(config, seed))
            best = {"full": 1.5, "attn_only": 1.8}[config] + 0.1 * SEEDS.index(seed)
            fake_runs.change_run(root, key(config, seed), best_val_loss=best)
    return root


def table(number):
    with (paper.TABLES / f"table{number}.csv").open(newline="", encoding="utf-8") as file:
        cells = {row["id"].removeprefix("paper."): row for row in csv.DictReader(file)}
    return cells, (paper.TABLES / f"table{number}.md").read_text(encoding="utf-8")


def test_runs_that_are_there_are_in_the_tables_and_the_others_are_said_to_be_missing(written):
    paper_aggregate.main()
    cells, text = table(3)
    assert cells["T3.attn_only.best_val_loss"]["printed"] == "1.9000 ± 0.1000"
    assert cells["T3.attn_only.n"]["printed"] == "3 of 8, 5 not run"
    assert cells["T3.attn_only.ratio_to_full"]["printed"] == "1.19×"  # 1.9 / 1.6
    missing = [cell for name, cell in cells.items() if name.startswith("T3.ffn_only.")]
    assert {cell["printed"] for cell in missing} == {"not run", "0 of 8, 8 not run"}
    assert {cell["value"] for cell in missing} == {"", "0"}
    assert cells["T3.ffn_attn_ratio.value"]["printed"] == "not run"
    assert "32 runs planned, 6 finished, 0 diverged, 26 not run" in text
    summary = json.loads(paper.SUMMARY.read_text())["gpt10m"]["residualgpt"]["ffn_only"]
    assert (summary["n_planned"], summary["n_finished"], summary["n_diverged"]) == (8, 0, 0)
    assert summary["best_val_loss"] is None


def test_every_planned_run_has_a_row_and_its_stage(written):
    paper_aggregate.main()
    runs = results.read_runs(paper.RUNS_CSV)
    assert [run.status for run in runs].count("not_run") == 104 - 6
    assert len(runs) == 104
    first, *_, last = paper.RUNS_CSV.read_text().splitlines()[1:]
    assert first.startswith("paper/dvc.yaml:train@gpt10m-residualgpt-full-1337,gpt10m,")
    assert last.startswith("paper/dvc.yaml:train_124m@gpt124m-nanogpt-no_res-7,gpt124m,")


def test_a_table_without_any_run_holds_no_number(written):
    paper_aggregate.main()
    cells, text = table(4)
    own = {cell["printed"] for name, cell in cells.items() if ".paper." not in name}
    assert own == {"not run", "0 of 5, 5 not run", "0"}
    assert cells["T4.paper.full.best_val_loss.reported"]["printed"] == "3.2630"
    assert cells["T4.paper.full.best_val_loss.verdict"]["printed"] == "not run here"
    assert "# Table 4. ResidualGPT at scale 124M" in text
    assert table(5)[0]["T5.gpt124m.residualgpt.attn_only"]["printed"] == "not run"
    assert table(5)[0]["T5.gpt10m.residualgpt.attn_gap"]["printed"].startswith("+18.8%")
    assert table(2)[0]["T2.gpt124m.full.best_val_loss"]["printed"] == "not run"


def test_table_1_is_the_papers(written):
    paper_aggregate.main()
    cells, _ = table(1)
    expected = {
        "n_params.gpt124m.residualgpt": "124,439,808",
        "n_params.gpt10m.nanogpt": "10,795,776",
        "lr.gpt124m.residualgpt": "0.0006",
        "min_lr.gpt124m.residualgpt": "6e-05",
        "lr.gpt124m.nanogpt": "0.0003",
        "schedule.gpt124m.nanogpt": "constant",
        "warmup_steps.gpt124m.residualgpt": "2,000",
        "warmup_steps.gpt10m.residualgpt": "100",
        "warmup_steps.gpt10m.nanogpt": "0",
        "steps.gpt124m.nanogpt": "20,000",
        "accumulation.gpt124m.nanogpt": "8",
        "batch_size.gpt10m.residualgpt": "64",
        "dropout.gpt10m.residualgpt": "0.2",
        "eval_interval.gpt124m.nanogpt": "500",
        "tie_weights.gpt10m.nanogpt": "untied",
    }
    assert {name: cells[f"T1.{name}"]["printed"] for name in expected} == expected


def test_a_diverged_run_and_a_missing_one_are_two_counts(written):
    lost = {"status": "diverged", "final_val_loss": None, "diverged_at": 150}
    fake_runs.change_run(written, key("full", 42), **lost)
    paper_aggregate.main()
    assert table(3)[0]["T3.full.n"]["printed"] == "2 of 8, 1 diverged, 5 not run"
    assert "6 runs" not in table(3)[1]
    assert "32 runs planned, 5 finished, 1 diverged, 26 not run" in table(3)[1]


def test_files_of_another_grid_and_half_a_run_are_refused(written):
    write_grids(written, grid__seed=[1337, 42])
    with pytest.raises(UserError, match="4 files belong to no run"):
        paper_aggregate.main()
    with pytest.raises(UserError, match="4 files belong to no run"):
        paper_check.main()
    write_grids(written)
    key("full", 42).paths("").curve.unlink()
    with pytest.raises(UserError, match=r"make them with: dvc repro paper/dvc\.yaml:train@"):
        paper_aggregate.main()
    assert not paper.RUNS_CSV.exists()


def test_a_run_of_a_data_set_that_is_not_there_names_its_stage(written):
    fake_runs.write_run(written, key("full", 7, scale="gpt124m"))
    with pytest.raises(UserError, match=r"metrics/data/openwebtext\.json"):
        paper_aggregate.main()


def test_figures_of_what_is_there(written):
    paper_aggregate.main()
    paper_figures.main()
    drawn = sorted(path.name for path in paper.PLOTS.iterdir())
    assert drawn == [f"figure{n}.{kind}" for n in range(1, 6) for kind in ("png", "svg")]


def test_figures_show_the_papers_implementation_or_else_the_one_that_ran(written):
    paper_aggregate.main()
    assert [data.prefer("nanogpt") for data in paper_figures.load()] == ["residualgpt", "nanogpt"]
    fake_runs.write_run(written, key("full", 7, "nanogpt"))
    paper_aggregate.main()
    assert paper_figures.load()[0].prefer("nanogpt") == "nanogpt"


def test_figures_without_any_run(root):
    write_grids(root)
    copy_registry(root)
    fake_runs.write_data(root, "shakespeare")
    paper_aggregate.main()
    paper_figures.main()
    assert len(list(paper.PLOTS.iterdir())) == 10


def test_figures_with_124m(written):
    fake_runs.write_data(written, "openwebtext", {"1": 6.9, "2": 5.8})
    for config in ("full", "attn_only", "ffn_only"):
        for impl in ("residualgpt", "nanogpt"):
            fake_runs.write_run(written, key(config, 7, impl, "gpt124m"))
    paper_aggregate.main()
    paper_figures.main()
    assert table(4)[0]["T4.full.n"]["printed"] == "1 of 5, 4 not run"


def test_what_the_paper_reports_stands_below_with_a_verdict(written):
    paper_aggregate.main()
    cells, text = table(3)
    row = "T3.paper.full.best_val_loss"
    assert cells[f"{row}.reported"]["printed"] == "1.5017"
    assert cells[f"{row}.here"]["printed"] == "1.6000 ± 0.1000"
    assert cells[f"{row}.verdict"]["printed"] == "reproduced"  # 0.1 / √3 is a standard error
    assert cells["T3.paper.ffn_only.best_val_loss.verdict"]["printed"] == "not run here"
    assert "Paper: Table 3. ResidualGPT, 10M" in text
    assert (paper.TABLES / "table3.tex").is_file()
    assert table(1)[0]["T1.paper.124M.n_params.here"]["printed"] == "124,439,808"


def test_the_tables_are_derived_from_the_table_of_runs(written):
    paper_aggregate.main()
    made = paper_aggregate.derive(results.read_runs(paper.RUNS_CSV))
    assert {path: path.read_text() for path in made} == made
    none = [replace(run, status="left out") for run in results.read_runs(paper.RUNS_CSV)]
    assert paper_aggregate.derive(none).keys() == made.keys()


def test_the_page_holds_every_table_and_says_what_was_not_run(written, monkeypatch):
    paper_aggregate.main()
    for name in paper_report.FIGURES:
        (paper.PLOTS / f"{name}.svg").parent.mkdir(parents=True, exist_ok=True)
        (paper.PLOTS / f"{name}.svg").write_bytes(FIGURE)
    shutil.copy(REPOSITORY / contents.PINNED, written)
    ids = views.numbers(views.tables(paper.TABLES))
    assert "paper.T3.full.best_val_loss" in ids
    assert "paper.T3.ffn_only.best_val_loss" not in ids  # no number: not run
    monkeypatch.setattr(paper_report, "Provenance", lambda folder: FakeProvenance(ids))
    paper_report.main()
    outline = Outline(path("paper").read_text())
    assert "104 runs planned: 6 finished, 0 diverged, 98 not run." in outline.texts
    shown = [a["id"] for a in outline.all("td") if "id" in a]
    assert len(shown) == len(set(shown)) == sum(len(table(n)[0]) for n in range(1, 6))
    assert len(outline.all("img")) == 5
    assert len(outline.all("polyline")) == 2 * 6
    assert "../report.html" in {a["href"] for a in outline.all("a")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grids": {}}, "grids: unknown key"),
        ({"grid__seeds": [1]}, "grid.seeds: unknown key"),
        ({"grid__seed": ["1"]}, "grid.seed.0: '1'"),
        ({"grid__seed": [1, 1]}, "must not hold 1 twice"),
        ({"grid__scale": ["gpt10"]}, "scales has no 'gpt10'"),
        ({"grid__scale": ["gpt124m"]}, "grid.scale: 'gpt124m' must be any scale but gpt124m"),
        ({"grid_124m__scale": ["tiny"]}, "grid_124m.scale: 'tiny' must be gpt124m"),
        ({"grid_124m__config": []}, "grid_124m.config"),
    ],
)
def test_a_wrong_grid_is_one_line(root, changes, message):
    write_grids(root, **changes)
    with pytest.raises(UserError) as error:
        paper.load(params.load())
    assert message in str(error.value)


def test_check_writes_the_schema(root):
    write_grids(root)
    paper_check.main()
    committed = (REPOSITORY / paper.SCHEMA).read_text()
    assert paper.SCHEMA.read_text() == committed
    assert json.loads(committed)["additionalProperties"] is False


def test_dvc_makes_the_tables_of_the_runs_that_are_there(written):
    """`-s`: the stage alone, not the hundred runs above it."""
    (written / "src").symlink_to(REPOSITORY / "src")
    (written / "paper/dvc.yaml").write_text((REPOSITORY / "paper/dvc.yaml").read_text())
    (written / ".dvcignore").write_text((REPOSITORY / ".dvcignore").read_text())
    dvc = (sys.executable, "-m", "dvc")
    for arguments in (
        ("init", "-q", "--no-scm"),
        ("repro", "-q", "-s", "paper/dvc.yaml:check", "paper/dvc.yaml:aggregate"),
        ("repro", "-q", "-s", "paper/dvc.yaml:figures"),
    ):
        subprocess.run((*dvc, *arguments), cwd=written, env=ENVIRONMENT, check=True)
    lock = YAML(typ="safe").load(Path("paper/dvc.lock").read_text())["stages"]
    assert list(lock) == ["check", "aggregate", "figures"]
    assert "3 of 8, 5 not run" in table(3)[1]
