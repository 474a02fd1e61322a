"""The analysis stages of studies/dvc.yaml, and the conclusions on the repository's own grid."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from dvc.repo import Repo

import fake_studies
from closure import closure
from fake_studies import FLOOR, Outcome
from resablate import findings, params, report, results, studies, studyruns
from resablate.analyses import (
    architecture,
    cross_scale,
    depth,
    gain,
    gain_optimiser,
    mechanism,
    mixer,
    phases,
    rescue,
    rounding,
    routing,
    strength,
)
from resablate.errors import UserError
from resablate.report import contents, views
from resablate.stages import studies_report
from test_report import FakeProvenance, Outline

ROOT = Path(__file__).parents[1]
ANALYSES = sorted(p.stem for p in (ROOT / "src/resablate/analyses").glob("*.py"))[1:]
AXES = ("scale", "impl", "config", "seed")
LEARNS, STAYS = Outcome(2.5, 100), Outcome(FLOOR + 0.005, None)
# DVC's own use of pygtrie.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")


# -- the stages ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stages():
    """The analysis stages by name."""
    with Repo(str(ROOT)) as repo:
        return {
            stage.name: stage
            for stage in repo.index.stages
            if Path(stage.path) == ROOT / "studies/dvc.yaml" and "resablate.analyses" in stage.cmd
        }


def relative(items):
    return {Path(item.fs_path).relative_to(ROOT).as_posix() for item in items}


def test_each_analysis_is_a_stage_and_depends_on_exactly_its_code(stages):
    assert stages.keys() == {f"{name}_results" for name in ANALYSES}
    for name in ANALYSES:
        stage = stages[f"{name}_results"]
        assert stage.cmd == f"PYTHONPATH=src python -m resablate.analyses.{name}"
        declared = {dep for dep in relative(stage.deps) if dep.startswith("src/")}
        files = closure(f"resablate.analyses.{name}", ROOT / "src")
        assert declared == {file.relative_to(ROOT).as_posix() for file in files}, name


def test_each_study_is_analysed_and_an_analysis_depends_on_its_runs_and_parameters(stages):
    analysed = set()
    for stage in stages.values():
        deps = relative(stage.deps)
        runs = {dep.removeprefix("metrics/runs/") for dep in deps if dep.startswith("metrics/runs")}
        curves = {dep.removeprefix("plots/curves/") for dep in deps if dep.startswith("plots/")}
        assert runs == curves
        own = runs - {"main/tiny"}
        read = {key for dep in stage.deps for key in getattr(dep, "params", [])}
        keys = {f"studies.{name}" for name in own} | ({"differences"} if own else set())
        assert {key for key in read if key.startswith(("studies.", "differences"))} == keys
        assert ("grid" in read) == ("main/tiny" in runs), stage.name
        analysed |= own
    assert analysed == studies.load(ROOT / studies.FILE).studies.keys()


# -- all of them, on the repository's own grid -----------------------------------------------------


def write(root, *names, world=fake_studies.base):
    fake_studies.make(root, *names, world=world)


@pytest.mark.parametrize("module", [phases, rescue, strength, mechanism])
def test_what_is_written_is_what_the_stage_declares(root, stages, module):
    write(root, *({module.NAME} & studies.load(ROOT / studies.FILE).studies.keys()))
    module.main()
    written = {p.relative_to(root).as_posix() for p in root.glob("*/studies/*") if p.is_file()}
    assert written - {"studies/params.yaml"} == relative(stages[f"{module.NAME}_results"].outs)
    document = json.loads((root / f"metrics/studies/{module.NAME}.json").read_text())
    assert len(re.findall(r"[.](?= [A-Z]|$)", document["conclusion"])) == 2  # sentences
    counts = document["counts"]
    assert counts["planned"] == counts["finished"] > 0
    text = (root / document["table"]).read_text()
    assert f"{counts['planned']} runs planned, {counts['finished']} finished, 0 diverged" in text
    assert "| Parameters | Steps | Tokens a run |" in text
    assert len((root / document["runs"]).read_text().splitlines()) == counts["planned"] + 1


def test_a_diverged_run_is_counted_named_and_in_no_mean(root):
    write(root, "rescue")
    runs = studyruns.Source().study("rescue")
    path = runs.arms[0].planned[0].key.paths("rescue").metrics
    lost = {"status": "diverged", "final_val_loss": None, "diverged_at": 150}
    path.write_text(json.dumps({**json.loads(path.read_text()), **lost}))
    rescue.main()
    document = json.loads((root / "metrics/studies/rescue.json").read_text())
    assert (document["counts"]["finished"], document["counts"]["diverged"]) == (
        document["counts"]["planned"] - 1,
        1,
    )
    text = (root / document["table"]).read_text()
    assert "2 of 3, 1 diverged" in text
    assert f"`{runs.arms[0].planned[0].key.stage}` (step 150)" in text


# -- conclusions follow the runs: each with its data flipped ---------------------------------------


def analyse(module, root, world, *names):
    """Write runs and return a finding of a module whose base is the root's runs."""
    write(root, *(names or (module.NAME,)), world=world)
    runs = studyruns.Source().study(module.NAME)
    base = studyruns.Source().main_arms(
        runs.scale, runs.arms[0].impl, runs.levels("config"), **{module.AXIS: module.BASE}
    )
    return module.analyse(runs, base)


def everything(outcome):
    return lambda study, arm, run, seed: outcome


@pytest.mark.parametrize("module", [architecture, depth, mixer])
def test_asymmetry_found_and_not(root, module):
    finding = analyse(module, root, fake_studies.base)
    assert finding.not_found.partition(" and not with ")[2].startswith("none")
    assert "AttnOnly alone left the unigram floor with" in finding.found
    finding = analyse(module, root, everything(LEARNS))
    assert "both AttnOnly and FFNOnly left the unigram floor with" in finding.found
    assert not finding.not_found.partition(" and not with ")[2].startswith("none")


def test_rescue_found_and_not(root):
    finding = analyse(rescue, root, everything(STAYS))
    assert "FFNOnly is brought off the floor by none of them" in finding.found

    def orthogonal(study, arm, run, seed):
        return LEARNS if run.init == "orthogonal" else STAYS

    finding = analyse(rescue, root, orthogonal)
    assert "No Residual is brought off the floor by orthogonal init (2.5" in finding.found
    assert "orthogonal" not in finding.not_found


def test_routing_needed_and_not(root):
    def needs_positions(study, arm, run, seed):
        return STAYS if run.attention_pattern == "diagonal" else LEARNS

    finding = analyse(routing, root, needs_positions)
    assert "was not found to need attention to itself and" in finding.not_found
    assert "and was found to need attention across positions;" in finding.not_found
    assert "above the 2.486 of a bigram model" in finding.not_found
    assert "FFNOnly attending to all but itself" in finding.found.partition("; against causal")[2]
    finding = analyse(routing, root, everything(Outcome(2.2, 100)))
    needs = "was not found to need attention across positions or attention to itself; the best run"
    assert needs in finding.not_found
    assert "was found" not in finding.not_found
    assert "below the 2.486 of a bigram model" in finding.not_found


def strong(study, arm, run, seed):
    return LEARNS if run.attn_skip >= 0.25 or run.ffn_skip == 1 else STAYS


def test_strength_thresholds_by_hand(root):
    write(root, "strength", world=strong)
    runs = studyruns.Source().study("strength")
    assert strength.thresholds(runs.arms, "attn_skip") == {
        0: 0.25,
        0.1: 0.25,
        0.25: 0.25,
        0.5: 0.25,
        1: 0,
    }
    assert strength.thresholds(runs.arms, "ffn_skip") == {0: 1, 0.1: 1, 0.25: 0, 0.5: 0, 1: 0}
    finding = strength.analyse(runs)
    assert "is of the attention skip 0.25 with FFN skip 0 and 0 with FFN skip 1;" in finding.found
    assert "17 of 25 pairs" in finding.found
    assert finding.not_found.startswith(
        "No seed left the floor with attention skip 0 and 0.1 at FFN skip 0, 0.1, 0.25 and 0.5;"
        " pairs with which some seeds did and some did not: 0;"
    )


def test_phases_with_the_same_bits_and_with_others(root):
    write(root, "phases")
    arms = {arm.levels["phase"]: arm for arm in studyruns.Source().study("phases").arms}
    for a, b in zip(arms["phase1"].planned, arms["phase2"].planned, strict=True):
        for of in (0, 1):
            target = b.key.paths("phases")[of]
            target.write_bytes(a.key.paths("phases")[of].read_bytes())
    finding = phases.analyse(studyruns.Source().study("phases"))
    assert "Phase 1 and Phase 2 for 3 of 3 seeds" in finding.found
    assert "Phase 1 and Phase 3 for 0 of 3 seeds" in finding.found
    assert "was not reached by any change of kernels" in finding.not_found

    def moved(study, arm, run, seed):
        return Outcome(2.5 if run.numerics == "native" else 2.9, 100)

    write(root, "phases", world=moved)
    assert (
        "was reached or passed by" in phases.analyse(studyruns.Source().study("phases")).not_found
    )


def rounding_finding(root, world):
    write(root, "seeds", "rounding", world=world)
    (full,) = studyruns.Source().main_arms("tiny", "residualgpt", ["full"])
    return rounding.analyse(
        studyruns.Source().study("seeds"), studyruns.Source().study("rounding"), full
    )


def test_rounding_that_scatters_and_that_does_not(root):
    def at_the_boundary(study, arm, run, seed):
        step = [100, 300, 500, None][(run.perturbation or seed) % 4]
        if "boundary" not in arm.name:
            return LEARNS
        return Outcome(2.4 + step / 1000, step) if step else STAYS

    finding = rounding_finding(root, at_the_boundary)
    assert "one seed (Phase 1, 3.4%) at the boundary (base 0." in finding.not_found
    assert "at the base, 8 seeds end at 2.50" in finding.found
    assert "6 of 8 off the floor" in finding.found
    finding = rounding_finding(root, everything(LEARNS))
    assert "scatter at one seed (Phase 1, 3.4%) at no point" in finding.not_found
    assert "8 of 8 and 8 of 8 off the floor" in finding.found


def test_gain_absorbed_and_not(root):
    def absorbed(study, arm, run, seed):
        return Outcome(2.5, 100)

    def kept(study, arm, run, seed):
        return Outcome(2.5 + 0.02 * run.gain, 100)

    write(root, "gain", world=kept)
    finding = gain.analyse(studyruns.Source().study("gain"))
    found, _, not_for = finding.not_found.partition(", and not for ")
    assert "AttnOnly under a runtime gain" in not_for
    assert "AttnOnly under a runtime gain" not in found
    assert "the best runtime gain of AttnOnly is 0.25" in finding.found


def test_spread_and_absorption_by_hand(root):
    write(root, "gain")
    ladder = gain.gains.ladders(studyruns.Source().study("gain").select(config="attn_only"))[
        "runtime"
    ]
    assert [arm.run.gain for arm in ladder.arms] == [0.25, 0.5, 1, 2, 4]
    steps = [0.0, 100.0, 200.0, 300.0]
    curves = [(steps, [4.0, 3.0, 2.5, 2.4]), (steps, [4.0, 3.1, 2.501, 2.4])]
    ladder.__dict__["curves"] = curves
    assert ladder.spread[1] == pytest.approx([0, 0.1, 0.001, 0])
    assert (ladder.absorbed_at, ladder.at(150)) == (200, pytest.approx(0.001))
    ladder.__dict__["spread"] = (steps, [0, 0.1, 0.001, 0.002])
    assert ladder.absorbed_at is None


def test_gain_under_optimisers(root):
    def sgd_minds(study, arm, run, seed):
        minds = run.optimiser == "sgd"
        return Outcome(2.4 + (0.1 * run.gain if minds else 0), 100)

    write(root, "gain_optimiser", world=sgd_minds)
    finding = gain_optimiser.analyse(studyruns.Source().study("gain_optimiser"))
    assert "SGD (runtime gain)" in finding.not_found.partition(", and not under ")[2]
    assert "SGD 0.37" in finding.found


def test_mechanism_follows_the_curves(root):
    write(root)
    finding = mechanism.analyse(mechanism.load(studyruns.Source()))
    assert "of 15 of 18 runs with a skip removed ends below 1%" in finding.found
    assert "in 18 of 18" in finding.found
    assert "Starvation in every model with a skip removed (C3) was not found" in finding.not_found
    assert "is not found in AttnOnly of ResidualGPT (at most 0.18)" in finding.not_found
    run = params.load().resolve("tiny", "residualgpt", "attn_only")
    for key in results.planned(["tiny"], ["residualgpt"], ["attn_only"], params.load().grid.seed):
        starving = {"grad_norm_block0": 1e-7, "attention_self_2": 0.97}
        fake_studies.write_run(root, key.paths("main"), run, LEARNS, key.seed, **starving)
    finding = mechanism.analyse(mechanism.load(studyruns.Source()))
    assert "of 18 of 18 runs with a skip removed ends below 1%" in finding.found
    assert "(C3) was found and it tells in all but 3 runs" in finding.not_found
    assert "is found in AttnOnly of ResidualGPT (at most 0.97)" in finding.not_found


def test_columns_that_were_not_measured_are_dashes_and_empty_panels(root):
    fake_studies.copy_params(root)
    fake_studies.fake_runs.make(root)  # curves of before these columns
    finding = mechanism.analyse(mechanism.load(studyruns.Source()))
    assert "the attention mass on itself (C5) was not measured" in finding.not_found
    cells = {cell.id: cell.printed for cell in finding.table.cells()}
    assert cells["mechanism.main-residualgpt-full.self_end"] == "—"
    figure = finding.figures["mechanism_routing"]()
    assert [t.get_text() for t in figure.axes[0].texts] == ["not measured"]


def test_cross_scale_shrinks_and_does_not(root):
    def shrunk(study, arm, run, seed):
        if run.attn_skip == 0:
            return Outcome(6.905, None)
        return Outcome(4.9 + 0.01 * (seed % 3) if run.ffn_skip else 6.0, 100)

    def of(world):
        write(root, "cross_scale", world=world)
        configs = list(params.load().grid.config)
        base = [
            a
            for i in ("residualgpt", "nanogpt")
            for a in studyruns.Source().main_arms("tiny", i, configs)
        ]
        return cross_scale.analyse(
            studyruns.Source().study("cross_scale"), base, results.read_floor("shakespeare")
        )

    finding = of(shrunk)
    assert "falls in ResidualGPT (0.84 [" in finding.not_found
    assert "AttnOnly alone left the unigram floor with tiny, ResidualGPT" in finding.found
    finding = of(everything(Outcome(4.9, 100)))
    assert "rises in ResidualGPT (0.84 [" in finding.not_found


# -- derived again, and the page -------------------------------------------------------------------


@pytest.mark.parametrize("module", [phases, rounding, mixer, mechanism])
def test_a_study_is_derived_from_its_rows_and_the_roots(root, module):
    write(root, *({"seeds", module.NAME} & studies.load(ROOT / studies.FILE).studies.keys()))
    made = findings.derive(module.find(studyruns.Source()))
    declared = params.load()
    keys = results.planned(*(getattr(declared.grid, axis) for axis in AXES))
    main = [results.read("main", key, FLOOR) for key in keys]
    (runs,) = (text for path, text in made.items() if path.name.endswith("_runs.csv"))
    Path("runs.csv").write_text(runs)
    rows = [*results.read_runs(Path("runs.csv")), *main]
    assert module.derive(rows) == made
    left = module.derive([replace(row, status="left out") for row in rows])
    assert left.keys() == made.keys()
    assert left != made
    with pytest.raises(UserError, match="row"):
        module.derive(rows[1:2])


def test_the_page_names_what_has_not_been_run(root, monkeypatch):
    write(root, "phases")
    phases.main()
    shutil.copy(ROOT / contents.PINNED, root)
    ids = views.numbers([views.table(Path("metrics/studies/phases"))])
    monkeypatch.setattr(studies_report, "Provenance", lambda folder: FakeProvenance(ids))
    studies_report.main()
    outline = Outline(report.path("studies").read_text())
    assert "1 of 14 studies have been run." in outline.texts
    assert len(outline.all("article")) == len(studies_report.STUDIES) == len(ANALYSES)
    assert outline.texts.count("Not run yet.") == 13
    assert "dvc repro studies/dvc.yaml:mixer_results" in outline.texts
    assert len(outline.all("img")) == 1
    assert [a["data-cell"] for a in outline.all("a") if "data-cell" in a] == ids
    assert "studies/dvc.yaml:phases@phase1-1337" in outline.texts
