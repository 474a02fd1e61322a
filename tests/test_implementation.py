"""Effects against least squares by hand; the study's table, sentences and figure from runs."""

import json

import numpy as np
import pytest

import fake_studies
from fake_studies import FLOOR, Outcome
from resablate import effects, paths, studyruns
from resablate.analyses import implementation
from resablate.errors import UserError


def warm_up_decides(study, arm, run, seed):
    learns = run.warmup_steps > 0 or run.attn_skip == run.ffn_skip == 1
    return Outcome(2.5 if learns else FLOOR, 100 if learns else None)


def batches_decide(study, arm, run, seed):
    learns = run.eval_batches == "fixed"
    return Outcome(2.5 if learns else FLOOR, 100 if learns else None)


def make(root, world=warm_up_decides):
    points = fake_studies.fraction()
    axes = {"config": ["full", "attn_only"], "point": list(points)}
    fake_studies.make_own(root, {"implementation": fake_studies.study(axes)}, points, world)


def test_effects_of_a_2_by_2_by_hand():
    coding = {"A": [-1, 1, -1, 1] * 2, "B": [-1, -1, 1, 1] * 2}
    # cell means 1, 3, 2, 8; the second block is 10 higher, and its cells off by ±.5
    outcome = [1, 3, 2, 8, 11.5, 12.5, 11.5, 18.5]
    a, b, ab = effects.fit(coding, [1] * 4 + [2] * 4, outcome)
    assert (a.term, b.term, ab.term) == (("A",), ("B",), ("A", "B"))
    assert a.estimate.mean == pytest.approx((3 + 8 + 12.5 + 18.5) / 4 - (1 + 2 + 11.5 + 11.5) / 4)
    assert b.estimate.mean == pytest.approx((2 + 8 + 11.5 + 18.5) / 4 - (1 + 3 + 11.5 + 12.5) / 4)
    assert ab.estimate.mean == pytest.approx((1 + 8 + 11.5 + 18.5) / 4 - (3 + 2 + 12.5 + 11.5) / 4)
    # residuals are ±.25, sum of squares .5, 8 - 5 = 3 degrees of freedom, error sqrt(s2 / 2)
    assert a.estimate.std == pytest.approx(np.sqrt(0.5 / 3 / 2))
    assert a.estimate.hi - a.estimate.mean == pytest.approx(3.182446 * a.estimate.std, rel=1e-6)


def test_effects_are_twice_the_coefficients_of_plain_regression():
    rng = np.random.default_rng(0)
    coding = {name: rng.choice([-1, 1], 40).tolist() for name in "ABC"}
    outcome = rng.normal(size=40)
    kept = [term for term, _ in effects.terms(coding)]
    design = [np.ones(40), *(effects.column(coding, term) for term in kept)]
    plain = np.linalg.lstsq(np.column_stack(design), outcome)[0]
    fitted = effects.fit(coding, ["one block"] * 40, outcome)
    assert [e.estimate.mean for e in fitted] == pytest.approx((2 * plain[1:]).tolist())


def test_aliases_of_the_fraction_are_those_of_its_generators(root):
    make(root)
    runs = studyruns.Source().study("implementation")
    names = [one.effect.name for one in implementation.tested(runs, "best_val_loss")]
    mains, pairs = names[:6], names[6:13]
    assert mains == list("TSMEWC")  # resolution IV: no pair is mixed up with a main effect
    assert "T×S = M×E" in pairs  # E = TSM
    assert "T×E = S×M = W×C" in pairs  # and C = SMW
    assert len(pairs) == 7
    assert len(runs.select(config="full")) == 16


def test_a_factor_that_does_not_vary_and_a_design_with_too_few_runs_are_refused():
    with pytest.raises(ValueError, match="factor B has one level"):
        effects.terms({"A": [1, -1], "B": [1, 1]})
    with pytest.raises(ValueError, match="too many runs are missing"):
        effects.fit({"A": [1, -1, 1], "B": [1, 1, -1]}, [0, 0, 1], [1.0, 2.0, 3.0])


def test_the_conclusion_follows_the_runs(root):
    make(root)
    finding = implementation.analyse(studyruns.Source().study("implementation"))
    assert (
        "for AttnOnly 1 of 13 effects can be told from zero, the largest being that of warm-up"
        in finding.found
    )
    assert "for Full Residual none of 13 effects can be told from zero" in finding.found
    assert (
        "+0.000 [-0.001, +0.001] nats for AttnOnly (0% of the largest effect)" in finding.not_found
    )
    quiet = finding.not_found.split("from zero: ")[1]
    assert quiet.startswith("for Full Residual all 6 factors; for AttnOnly tied head, ")
    assert "redrawn val batches" in quiet
    assert "warm-up" not in quiet


def test_flipped_runs_flip_the_conclusion(root):
    make(root, batches_decide)
    finding = implementation.analyse(studyruns.Source().study("implementation"))
    top = "the largest being that of redrawn val batches (E), +0.84"
    assert top in finding.found
    assert finding.not_found.count("(the largest effect)") == 2
    assert "redrawn val batches" not in finding.not_found.split("told from zero")[1]


def test_everything_is_written_and_a_rerun_gives_the_same_bytes(root):
    make(root)
    implementation.main()
    written = {p: p.read_bytes() for p in root.glob("*/studies/implementation*")}
    names = {path.name for path in written}
    suffixes = (".md", ".csv", "_runs.csv", ".json", ".svg", ".png")
    assert names == {f"implementation{suffix}" for suffix in suffixes}
    document = json.loads((root / "metrics/studies/implementation.json").read_text())
    assert document["counts"] == {"arms": 32, "planned": 96, "finished": 96, "diverged": 0}
    text = (root / document["table"]).read_text()
    assert "| AttnOnly: W warm-up |" in text
    assert "32 arms; seeds 1337, 42, 123; 96 runs planned, 96 finished, 0 diverged." in text
    implementation.main()
    assert {p: p.read_bytes() for p in written} == written


def test_a_missing_run_is_refused_with_the_stage_that_makes_it(root):
    make(root)
    paths.run("implementation", "tiny", "attn_only-p03", 42).metrics.unlink()
    with pytest.raises(UserError, match="implementation@attn_only-p03-42"):
        implementation.main()
    assert not (root / "metrics/studies").exists()
