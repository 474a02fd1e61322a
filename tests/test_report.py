"""The page as text: what it holds, that nothing in it is markup but its own, equal bytes."""

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import fake_runs
from fake_runs import change_run, make
from resablate import paths, report, results
from resablate.arms import Arms
from resablate.errors import UserError
from resablate.report import contents, finding, lineage, views
from resablate.report.curves import HEIGHT, Axis, chart
from resablate.report.page import Page, page
from resablate.results import RunKey
from resablate.stages import aggregate
from resablate.stages import report as stage

HOSTILE = "<script>alert('x')</script>\"'&amp;</style></script>--><img src=x onerror=alert(1)>"
FIGURE = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'
VOID = {"meta", "br", "img", "link", "input", "hr", "line", "circle", "rect", "polyline"}


class Outline(HTMLParser):
    """Every element with its attributes, and a complaint for each that is not closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.texts = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


class FakeProvenance:
    """Lineage in the form of resablate.provenance, of every cell the same."""

    def __init__(self, cells, label="train@tiny-residualgpt-full-1337"):
        self.cells = dict.fromkeys(cells)
        self.label = label

    def lineage(self, identity):
        parts = {
            "command": "train",
            "parameters": {"params.yaml": {"base": {HOSTILE: HOSTILE}}},
            "code": {"src/a.py": "ab" * 16},
            "data": {"data/tokens/tiny": "cd.dir"},
            "outs": {},
            "broken": [],
        }
        return {
            "id": identity, "file": "metrics/tables/table3.csv", "printed": "2.5", "value": 2.5,
            "std": None, "n": 1, "lo": None, "hi": None, "unit": "nats/token", "formula": None,
            "rounding": "4 decimals", "runs_exact": True, "producer": "aggregate",
            "runs": [{"stage": self.label, "seed": 1337, "status": "finished",
                      "values": {"best_val_loss": 2.5}, "environment": "machine"}],
            "stages": {self.label: parts, "aggregate": parts}, "files": {},
            "sources": [{"document": "d", "corpus": HOSTILE, "sha256": "ef", "stage": "p"}],
            "environments": {"machine": {"cpu": "one"}}, "commit": "0" * 40, "broken": [],
        }  # fmt: skip


def built(root, monkeypatch, **grid):
    """Make runs, tables, figures and the page without DVC; return its text."""
    make(root, **grid)
    aggregate.main()
    for name in stage.FIGURES:
        (root / f"plots/{name}.svg").write_bytes(FIGURE)
    shutil.copy(fake_runs.REPOSITORY / contents.PINNED, root)
    ids = views.numbers(views.tables(paths.TABLES))
    monkeypatch.setattr(stage, "Provenance", lambda folder: FakeProvenance(ids))
    stage.main()
    return report.path("main").read_text(encoding="utf-8")


def addresses(text):
    """Return every absolute address in a page, outside of its namespaces and pictures."""
    bare = re.sub(r"data:image/svg\+xml;base64,[A-Za-z0-9+/=]+", "", text)
    return re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}", bare)


def test_the_page_holds_every_cell_figure_and_run_and_asks_for_no_other_file(root, monkeypatch):
    text = built(root, monkeypatch, seed=[1337, 42])
    outline = Outline(text)
    cells = [
        cell
        for t in views.tables(paths.TABLES)
        for g in t.grids
        for _, row in g.rows
        for cell in row
    ]
    found = [attributes["id"] for attributes in outline.all("td") if "id" in attributes]
    assert found == [cell.id for cell in cells]
    assert {cell.printed for cell in cells} <= set(outline.texts)
    assert len(outline.all("polyline")) == 2 * 16
    assert len(outline.all("img")) == 4
    assert "train@tiny-nanogpt-no_res-42" in outline.texts
    assert addresses(text) == []
    assert not [a for _, a in outline.elements if a.get("src", "data:")[:5] != "data:"]
    links = {a["href"] for a in outline.all("a") if not a["href"].startswith("#")}
    assert links == {"studies/report.html", "paper/report.html"}


def test_equal_runs_give_equal_bytes_in_another_process(root, monkeypatch):
    text = built(root, monkeypatch, seed=[1])
    code = (
        "import test_report as t; from resablate.stages import report as s; from resablate import"
        " paths; from resablate.report import views;"
        "ids = views.numbers(views.tables(paths.TABLES));"
        "s.Provenance = lambda folder: t.FakeProvenance(ids); s.main()"
    )
    source = fake_runs.REPOSITORY
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": f"{source}/src:{source}/tests"}
    report.path("main").unlink()
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env=environment)
    assert report.path("main").read_text(encoding="utf-8") == text
    for volatile in ("machine", "0" * 40, str(root)):
        assert volatile not in text.replace("The machine, its", "")


def test_hostile_words_stay_words(root):
    hostile_table = views.TableView(
        HOSTILE,
        HOSTILE,
        [
            views.Grid(
                HOSTILE,
                [HOSTILE],
                [([views.Span(HOSTILE)], [views.CellView(HOSTILE, HOSTILE, True)])],
            )
        ],
        [views.spans(f"`{HOSTILE}` *{HOSTILE}*")],
    )
    data = lineage.compact(FakeProvenance([HOSTILE], HOSTILE), [HOSTILE], {HOSTILE: HOSTILE})
    picture = views.Figure(HOSTILE, HOSTILE, "data:image/png;base64,AA==")
    study = views.Study(*[HOSTILE] * 5, hostile_table, [picture])
    text = page(
        Page(
            pipeline="main",
            title=HOSTILE,
            finding=[HOSTILE],
            tables=[hostile_table],
            figures=[picture],
            studies=[study],
            runs=[{"stage": HOSTILE, HOSTILE: HOSTILE}],
            environment=[(HOSTILE, HOSTILE)],
            lineage=data,
        )
    )
    outline = Outline(text)
    assert len(outline.all("script")) == 2  # the data and our own
    assert not [a for _, a in outline.elements if "onerror" in a]
    assert len(outline.all("img")) == 2
    held = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert held["cells"][HOSTILE]["value"] == 2.5
    assert held["parameters"][0]["params.yaml"]["base"] == {HOSTILE: HOSTILE}


def test_lineage_is_stored_once_however_many_cells_share_it():
    ids = [f"T3.full.{i}" for i in range(50)]
    data = lineage.compact(FakeProvenance(ids), ids, {ids[0]: "the paper's"})
    assert len(data["cells"]) == 50
    assert [len(data[name]) for name in ("runs", "stages", "files", "parameters")] == [1, 2, 2, 1]
    assert data["texts"][data["cells"][ids[0]]["formula"]] == "the paper's"
    assert "environment" not in data["runs"][0]
    assert lineage.compact(FakeProvenance(ids), ["elsewhere"], {})["cells"] == {}


def test_a_screen_reader_finds_its_way(root, monkeypatch):
    outline = Outline(built(root, monkeypatch, seed=[1]))
    assert all(a.get("scope") in ("col", "row") for a in outline.all("th"))
    assert len(outline.all("caption")) == len(outline.all("table")) > 10
    assert all(a.get("alt") for a in outline.all("img"))
    labelled = [a for a in outline.all("svg") if a.get("aria-hidden") != "true"]
    assert labelled
    assert all(a["aria-label"] and a["tabindex"] == "0" for a in labelled)
    assert [len(outline.all(tag)) for tag in ("main", "h1", "header", "nav")] == [1, 1, 1, 1]
    ids = [a["id"] for _, a in outline.elements if "id" in a]
    assert len(set(ids)) == len(ids)
    targets = {a["href"][1:] for a in outline.all("a") if a["href"].startswith("#")}
    assert targets <= set(ids)
    regions = [a for a in outline.all("div") if a.get("role") == "region"]
    assert regions
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in regions)


def test_the_finding_is_what_the_runs_say(root):
    make(root, seed=[1])
    floor = fake_runs.FLOOR
    values = {
        ("residualgpt", "full"): 2.0,
        ("residualgpt", "attn_only"): 2.5,
        ("residualgpt", "ffn_only"): floor + 0.01,
        ("residualgpt", "no_res"): floor + 0.2,
        ("nanogpt", "full"): 2.1,
        ("nanogpt", "attn_only"): floor,
        ("nanogpt", "ffn_only"): floor,
        ("nanogpt", "no_res"): floor,
    }
    for (impl, config), best in values.items():
        change_run(root, RunKey("tiny", impl, config, 1), best_val_loss=best)
    aggregate.main()
    arms = Arms(results.read_runs(paths.RUNS_CSV))
    summary = results.read_json(paths.SUMMARY, "")
    text = " ".join(finding.sentences(arms, summary)).replace("\N{NO-BREAK SPACE}", " ")
    assert "would reach 3.3473 nats per token: the floor." in text
    assert (
        "ResidualGPT: Full Residual (2.0000, n = 1) and AttnOnly (2.5000, n = 1) fall below it with"
        " every seed; FFNOnly (3.3573, n = 1) stay at it with every seed; No Residual (3.5473,"
        " n = 1) differ from seed to seed."
    ) in text
    assert "AttnOnly and No Residual alone end differently" in text


def test_a_log_axis_has_a_marked_place_for_zero():
    axis = Axis([5.0, 3e-8, 0.0], log=True)
    ticks = {tick.text: tick.at for tick in axis.ticks()}
    assert ticks["0"] == axis(0.0) > axis(3e-8) > axis(5.0)
    assert axis(0.0) < HEIGHT
    assert "10¹" in ticks


def test_a_diverged_run_is_drawn_as_far_as_it_went(root):
    make(root, seed=[1], impl=["residualgpt"], config=["full"])
    key = RunKey("tiny", "residualgpt", "full", 1)
    change_run(root, key, status="diverged", final_val_loss=None, diverged_at=100)
    aggregate.main()
    (run,) = results.read_runs(paths.RUNS_CSV)
    curve = {"step": [0.0, 50.0, 100.0], "val_loss": [4.0, 3.0, float("nan")]}
    made = chart("v", "Loss", "val_loss", "nats", [run], {key.stage: curve})
    (line,) = made.panels[0].lines
    assert (line.steps, line.values) == ("0 50", "4 3")
    assert line.label == "ResidualGPT, Full Residual, seed 1, diverged"


@pytest.mark.parametrize("damage", ["2.5", "drop"])
def test_a_table_whose_words_and_cells_disagree_is_refused(root, damage):
    make(root, seed=[1])
    aggregate.main()
    path = paths.TABLES / "table3.csv"
    lines = path.read_text().splitlines(keepends=True)
    cells = lines[1].split(",")
    cells[5] = damage
    path.write_text(
        "".join([lines[0], *([",".join(cells)] if damage != "drop" else []), *lines[2:]])
    )
    with pytest.raises(UserError, match=r"table3.csv do not belong together"):
        views.tables(paths.TABLES)


def test_studies_are_shown_with_their_conclusion_table_and_figure(root):
    make(root, seed=[1])
    aggregate.main()
    folder = Path("metrics/studies")
    folder.mkdir()
    for suffix in ("md", "csv"):
        shutil.copy(paths.TABLES / f"table3.{suffix}", folder / f"gain.{suffix}")
    (root / "plots/gain.svg").write_bytes(FIGURE)
    told = {
        "title": "Gain",
        "question": "Is it absorbed?",
        "conclusion": "At tiny, yes.",
        "counts": {"arms": 4, "planned": 12},
        "table": "metrics/studies/gain.md",
        "figures": ["plots/gain.svg", "plots/gain.svg"],
    }
    document = folder / "gain.json"
    document.write_text(json.dumps(told))
    (study,) = views.studies(folder)
    text = page(Page("studies", "Open questions", ["One."], studies=[study]))
    for words in (
        "Is it absorbed?",
        "At tiny, yes.",
        "T3.full.best_val_loss",
        "4 arms, 12 planned",
    ):
        assert words in text
    assert text.count("<img") == 2
    assert 'href="../report.html"' in text
    document.write_text(json.dumps({"title": "Gain", "question": "?"}))
    with pytest.raises(UserError, match=r"gain\.json: lacks conclusion"):
        views.studies(folder)


def test_the_command_names_the_page_or_says_how_to_make_it(root):
    command = [sys.executable, "-m", "resablate", "report", "--no-browser"]
    environment = os.environ | {"PYTHONPATH": f"{fake_runs.REPOSITORY}/src"}

    def run():
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert (
        run().stderr
        == "error: plots/report.html: not there yet; make it with: dvc repro dvc.yaml\n"
    )
    report.path("main").parent.mkdir()
    report.path("main").write_text("page")
    assert run().stdout == f"{root}/plots/report.html\n"


def test_a_part_of_the_grid_has_its_page(root, monkeypatch):
    grid = {"impl": ["residualgpt"], "config": ["attn_only"], "seed": [1337]}
    text = Outline(built(root, monkeypatch, **grid)).texts
    assert "nanoGPT is not in the grid." in text
    assert "AttnOnly (" in " ".join(text)
