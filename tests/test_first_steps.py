"""The phase diagram: fates, the critical rate, and sentences that follow the runs."""

import math

import pytest

import fake_studies
from fake_studies import FLOOR, Outcome
from resablate import studyruns
from resablate.analyses import first_steps
from resablate.results import Result

LR = {f"lr{rate:g}": {"lr": rate, "min_lr": rate / 10} for rate in (1e-4, 3e-4, 1e-3, 3e-3)}
WARMUP = {f"w{steps}": {"warmup_steps": steps} for steps in (0, 100, 300)}
WIDTH = {f"d{width}": {"n_embd": width, "n_head": 4} for width in (64, 96, 192)}


def hypothesis(study, arm, run, seed):
    """The critical rate falls with width and rises with warm-up; near it, runs leave late."""
    if run.attn_skip == 0:
        return Outcome(FLOOR, None)
    if run.ffn_skip == 1:
        return Outcome(2.4, 50)
    excess = run.lr * run.n_embd / 96 / (1e-3 * (1 + run.warmup_steps / 100))
    if run.lr < 2e-4 and run.n_embd < 96:
        return Outcome(FLOOR + 0.3, None)
    if excess <= 0.9:
        return Outcome(2.6, 100)
    return Outcome(3.1, 300) if excess <= 1 else Outcome(FLOOR, None)


def always_learns(study, arm, run, seed):
    return Outcome(2.5, 100)


def make(root, world=hypothesis):
    axes = {"lr": list(LR), "warmup": list(WARMUP), "width": list(WIDTH)}
    coarse = {"config": ["full", "ffn_only", "no_res"], "lr": ["lr0.0003", "lr0.003"]}
    coarse["warmup"] = ["w0", "w300"]
    declared = {
        "first_steps": fake_studies.study(axes, [1337]),
        "first_steps_others": fake_studies.study(coarse, [1337]),
    }
    fake_studies.make_own(root, declared, {**LR, **WARMUP, **WIDTH}, world)


def analyse():
    return first_steps.analyse(
        *map(studyruns.Source().study, ("first_steps", "first_steps_others"))
    )


@pytest.mark.parametrize(
    ("escape", "best", "status", "expected"),
    [
        (200, 3.0, "finished", first_steps.LEARNS),
        (250, 3.2, "finished", first_steps.LATE),
        (None, 3.35, "finished", first_steps.FLOOR),
        (None, 3.30, "finished", first_steps.FLOOR),
        (None, 3.46, "finished", first_steps.ABOVE),
        (100, 3.0, "diverged", first_steps.DIVERGED),
    ],
)
def test_fate_by_hand(escape, best, status, expected):
    values = {"escape_step": escape, "best_val_loss": best, "steps": 400}
    assert first_steps.fate(Result(None, status, values), 3.35) == expected


def test_critical_rates_by_hand(root):
    make(root)
    runs = studyruns.Source().study("first_steps")
    critical = first_steps.Critical(runs.arms, runs.floor)
    assert critical.by_width(0) == [3e-3, 1e-3, 1e-3]  # width 96 at 1e-3 leaves the floor late
    assert critical.by_width(300) == [math.inf, math.inf, 3e-3]
    assert critical.falls_with_width
    assert critical.rises_with_warmup


def test_the_conclusion_follows_the_runs(root):
    make(root)
    finding = analyse()
    rates = "0.003 at width 64, 0.001 at width 96 and 0.001 at width 192 with 0 warm-up steps"
    assert f"does not learn at once is {rates}; above all tried at width 64" in finding.found
    claims = "critical rate falls with width, that a longer warm-up raises it and that the floor"
    assert claims in finding.not_found
    assert "what did not is none" in finding.not_found
    assert "Full Residual left the floor in 4 of 4 cells" in finding.not_found
    assert "FFNOnly left the floor in 0 of 4 cells" in finding.not_found


def test_flipped_runs_flip_the_conclusion(root):
    make(root, always_learns)
    finding = analyse()
    assert finding.found.count("above all tried at every width") == 2
    assert "36 of 36 cells learn at once" in finding.found
    assert "what held in this grid is none, and" in finding.not_found
    assert "FFNOnly left the floor in 4 of 4 cells" in finding.not_found


def test_table_and_figure(root):
    make(root)
    first_steps.main()
    text = (root / "metrics/studies/first_steps.md").read_text()
    assert "| AttnOnly, width 64 | 0.003 | 0.003 | above all tried |" in text
    assert "| AttnOnly, width 192 | 0.001 | 0.001 | 0.003 |" in text
    assert "48 arms; seeds 1337; 48 runs planned, 48 finished, 0 diverged." in text
    rows = (root / "metrics/studies/first_steps_runs.csv").read_text().splitlines()
    assert len(rows) == 49
    assert (root / "plots/studies/first_steps.svg").is_file()
