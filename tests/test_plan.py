"""The plan's numbers by hand, and against real runs."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from resablate import dag, measure, params, plan, rates, sizes
from resablate.errors import UserError
from resablate.model import GPT
from toy import ENVIRONMENT, ROOT
from toys import VOCAB, toy_run, toy_tokens

CELL = "tiny-residualgpt-full-1337"
IDLE = 0.5  # load, per core, up to which the clock measures this process alone


@pytest.fixture
def here(monkeypatch):
    """The repository as the current folder."""
    monkeypatch.chdir(ROOT)


def resolve(scale, impl="residualgpt"):
    return params.load(ROOT / "params.yaml").resolve(scale, impl, "full")


def planned(capsys, *targets, **options):
    """Return what the plan prints."""
    asked = {"targets": list(targets), "no_measure": True, "price": [], "json": False}
    asked |= {"utilisation": 0.25} | options
    assert plan.main(argparse.Namespace(**asked)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("impl", ["residualgpt", "nanogpt"])
@pytest.mark.parametrize("bias", [True, False])
def test_parameters_are_those_of_the_model(impl, bias, monkeypatch):
    monkeypatch.setitem(sizes.VOCABULARY, "shakespeare", VOCAB)
    run = toy_run(impl, bias=bias)
    assert sizes.n_params(run) == sum(p.numel() for p in GPT(run, VOCAB).parameters())


def test_sizes_of_the_paper():
    small, large = resolve("gpt10m"), resolve("gpt124m")
    assert sizes.n_params(small) == 10_770_816
    assert sizes.n_params(resolve("gpt10m", "nanogpt")) == 10_795_776
    assert sizes.n_params(large) == 124_439_808
    # 6 (6 x 12 x 384^2 + 65 x 384) + 12 x 6 x 384 x 256 for each of 64 x 256 tokens
    assert sizes.flops_per_token(small) * small.tokens_per_step == 1_162_094_837_760
    assert sizes.sizes(small).training_flops == pytest.approx(3.5e15, rel=0.01)
    assert sizes.sizes(large).training_flops == pytest.approx(2.25e18, rel=0.01)
    assert sizes.sizes(small)[0] == 49_152_000
    assert sizes.sizes(small).n_evaluations == 31  # 0, 100, ... 3,000
    assert sizes.sizes(toy_run()).n_evaluations == 4  # 0, 5, 10 and the last, 12


def test_vocabularies_are_those_of_the_prepared_data():
    for dataset, size in sizes.VOCABULARY.items():
        document = ROOT / f"metrics/data/{dataset}.json"
        if document.is_file():
            assert json.loads(document.read_text())["vocab_size"] == size


def test_causal_elements_by_hand():
    assert sizes.causal_elements(8) == 64
    assert sizes.causal_elements(256) == 64 * (64 + 128 + 192 + 256)
    assert sizes.causal_elements(100) == 64 * 64 + 36 * 100


@pytest.mark.parametrize(
    ("batch", "dtype", "peak"),
    [
        (8, "float32", 951e6),
        (8, "bfloat16", 755e6),
        (32, "float32", 2439e6),
        (32, "bfloat16", 1776e6),
    ],
)
def test_memory_is_within_a_tenth_of_what_the_benchmark_measured(batch, dtype, peak):
    """Peaks of whole processes, as the README prints them; they hold 0.3 GB before they train."""
    run = resolve("gpt10m").model_copy(update={"batch_size": batch, "dtype": dtype})
    assert sizes.memory(run) + 0.3e9 == pytest.approx(peak, rel=0.1)


def test_a_plan_by_hand(here, capsys):
    (found,) = json.loads(planned(capsys, "gpt10m-residualgpt-*", json=True))
    assert (found["cells"], found["n_params"]) == (32, 10_770_816)
    assert found["epochs"] == pytest.approx(49_152_000 / 1_003_854)
    flops = found["training_flops"] + found["evaluation_flops"]
    hours = flops / (0.25 * 312e12) / 3600  # bfloat16 on an A100
    assert found["gpus"]["A100"]["hours"] == pytest.approx(hours)
    assert found["gpus"]["A100"]["dollars"] == pytest.approx(1.30 * hours)
    assert found["here"] is None
    assert list(found["memory"]) == ["64 x 1", "32 x 2", "16 x 4", "8 x 8"]


def test_the_default_is_the_paper_and_everything_is_said(here, capsys):
    printed = planned(capsys, price=["H100=2.00"], utilisation=0.5)
    # 32 of the grid, and 9, 24 and 18 of the starts, gains and strengths
    assert "10M, ResidualGPT: 83 cells of 3,000 updates, 10,770,816 parameters" in printed
    assert "10M, ResidualGPT, conv: 12 cells" in printed
    assert "124M, nanoGPT: 20 cells of 20,000 updates" in printed
    assert "3.49e+15 a run to train (1.16e+12 an update)" in printed
    assert "all 200 cells, one after the other" in printed
    assert "50% of the dense peak, an assumption" in printed
    assert "some changed here" in printed
    assert "A100" not in planned(capsys, "dvc.yaml")  # `tiny` stays on the CPU


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": ["train@no-such-*"]}, "train@no-such-.: names no cell of dvc.yaml"),
        ({"price": ["B200=1"]}, "--price B200=1: must be NAME=DOLLARS"),
        ({"price": ["A100=cheap"]}, "--price A100=cheap: must be"),
        ({"price": ["A100=nan"]}, "--price A100=nan: must be dollars"),
        ({"utilisation": 0.0}, "--utilisation 0.0: must be above 0"),
        ({"utilisation": 1.5}, "--utilisation 1.5: must be above 0 and at most 1"),
    ],
)
def test_wrong_options_are_one_line(here, capsys, options, message):
    with pytest.raises(UserError, match=message):
        planned(capsys, *options.pop("targets", []), **options)


def test_targets(here):
    names = {cell.name for cell in dag.select(["paper/dvc.yaml:train@gpt10m-*-full-7"])}
    assert names == {f"train@gpt10m-{impl}-full-7" for impl in ("residualgpt", "nanogpt")}
    assert [cell.address for cell in dag.select([CELL])] == [f"train@{CELL}"]
    assert len(dag.select(["paper/dvc.yaml", "gpt10m-*"])) == 200
    assert len(dag.select([])) >= 128


def test_studies_are_planned_too(here, capsys):
    cells = dag.select(["studies/dvc.yaml"])
    assert len(cells) > 100
    printed = planned(capsys, "studies/dvc.yaml")
    assert f"all {len(cells)} cells" in printed
    phases = dag.select(["phases@phase1-*"])[0]
    assert "studies/params.yaml:differences.phase1" in phases.params
    assert dag.inputs(phases)["params"]["studies/params.yaml:differences.phase1"] is not None
    assert phases.cmd.endswith("resablate.stages.study phases phase1 1337")
    cells = dag.select(["paper/dvc.yaml:start_*"])
    of = {(impl, run.schedule, run.warmup_steps) for _, impl, run in dag.runs(cells, params.load())}
    every = {(impl, s, w) for impl in ("residualgpt", "nanogpt") for s in ("cosine", "constant")
             for w in (0, 100)}  # fmt: skip
    assert every - of == {("residualgpt", "cosine", 100), ("nanogpt", "constant", 0)}


def test_prices_have_a_source_and_can_be_changed():
    assert [gpu.price for gpu in rates.priced(["H200=3.5"])] == [1.30, 3.00, 3.5]
    assert "2026" in rates.PRICES_SEEN


def test_costs_by_hand():
    costs = measure.Costs(
        startup=2.0, micro=0.5, update=0.1, row=3.0, token=0.001, save=0.1,
        batch=4, memory=0, device="cpu", threads=1, clock="wall",
    )  # fmt: skip
    run = toy_run(accumulation=2)  # 12 updates, 13 gradients, 4 evaluations
    seconds = 2 + 1.1 * (13 * 2 * 0.5 + 12 * 0.1 + 4 * 3) + 500 * 0.001
    assert costs.seconds(run, 500) == pytest.approx(seconds)


def test_a_large_shape_is_measured_small_and_a_gpu_whole():
    run = resolve("gpt124m")
    rate = 2e12  # FLOP/s of GEMM, of which a step reaches half
    small = measure.shrunk(run, "cpu", rate)
    assert (small.batch_size, small.accumulation, small.n_eval_batches) == (3, 1, 2)
    assert measure.shrunk(run, "cuda", rate).batch_size == 16
    assert measure.shrunk(resolve("tiny"), "cpu", rate).batch_size == 16
    # 3 s of the 1.16 that a micro-batch of 64 sequences takes at 1e12 FLOP/s; at a tenth of that, a
    # quarter of the sequences
    assert measure.shrunk(resolve("gpt10m"), "cpu", rate).batch_size == 64
    assert measure.shrunk(resolve("gpt10m"), "cpu", rate / 10).batch_size == 16


def test_measuring_trains_and_scales(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "SECONDS", 0.01)
    run = toy_run(accumulation=4, batch_size=4)
    toy_tokens(tmp_path)
    whole = measure.measure(run, run, tmp_path)
    assert whole["batch"] == 4
    assert all(whole[name] > 0 for name in ("micro", "update", "row", "token", "memory"))
    one = measure.shrunk(run, "cpu", rate=1.0)
    assert measure.measure(run, one, tmp_path)["batch"] == 1


@pytest.fixture
def toy_folder(tmp_path, monkeypatch):
    """Toy tokens, of a vocabulary that sizes.py knows, and a small product to take the rate of."""
    monkeypatch.setitem(sizes.VOCABULARY, "shakespeare", VOCAB)
    monkeypatch.setattr(measure, "GEMM", 64)
    toy_tokens(tmp_path)
    return tmp_path


def test_how_long_measuring_takes_is_said_first(toy_folder, monkeypatch, capsys):
    monkeypatch.setattr(measure, "SECONDS", 0.01)
    costs = measure.measure_within_limit(toy_run(), toy_folder)
    assert float(capsys.readouterr().out) == pytest.approx(4 * 2 * 0.01, rel=0.5)
    assert costs["clock"] == "cpu"  # one thread
    assert measure._announced(12.3) == "measuring for about 12 s, 60 s at most"
    assert measure._announced(280.0).endswith("about 280 s, above 60 s: estimated instead")


def test_a_shape_that_is_too_slow_is_cut_short_and_estimated(toy_folder, monkeypatch):
    monkeypatch.setattr(measure, "SECONDS", 5.0)  # of each of five things
    monkeypatch.setattr(measure, "CALLS", 10**9)
    monkeypatch.setattr(measure, "LIMIT", 0.5)
    monkeypatch.setattr(measure, "expected", lambda *_: 0.1)
    began = time.process_time()
    costs = measure.measure_within_limit(toy_run(), toy_folder)
    assert costs["clock"] == "gemm"
    assert time.process_time() - began < 4.0


def test_a_shape_that_would_be_too_slow_is_not_begun(toy_folder, monkeypatch):
    monkeypatch.setattr(measure, "LIMIT", 1e-9)
    monkeypatch.setattr(measure, "measure", None)
    assert measure.measure_within_limit(toy_run(), toy_folder)["clock"] == "gemm"


def test_an_estimate_by_hand(here, capsys, monkeypatch):
    run = resolve("tiny")
    flops = sizes.flops_per_token(run) * 16 * 64
    costs = dict(measure.estimated(run, 2.0 * flops, "cpu", 1))
    assert costs["micro"] == pytest.approx(1.0)  # half the rate is reached
    assert costs["row"] == pytest.approx(21 / 3)  # 20 batches, and one for the hidden states
    del costs["measuring"]
    fixed = measure.Costs(startup=0.0, **costs)
    monkeypatch.setattr(measure, "measured", lambda *_: fixed)
    printed = planned(capsys, CELL, no_measure=False)
    assert "estimated, not measured: 50% of the rate of GEMM, cpu, 1 threads" in printed
    assert ", not all measured" in printed
    monkeypatch.setattr(measure, "measured", lambda *_: fixed._replace(clock="cpu", batch=16))
    printed = planned(capsys, CELL, no_measure=False)
    assert "measured in CPU time, cpu, 1 threads, 16 of 16 sequences" in printed


def test_a_slow_call_is_made_once():
    times = iter([0.0, 3.0])
    assert measure.timed(lambda: None, lambda: None, lambda: next(times)) == 3.0


def test_what_was_measured_is_kept(tmp_path, monkeypatch):
    for name in ("params.yaml", "metrics/data/shakespeare.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    run = resolve("tiny")
    kept = tmp_path / f".resume/plan/{measure._key(run)}.json"
    kept.parent.mkdir(parents=True)
    costs = measure.Costs(1.0, 0.5, 0.1, 3.0, 0.001, 0.1, 16, 7, "cpu", 1, "cpu")
    kept.write_text(json.dumps(costs._asdict()))
    assert measure.measured("tiny", run) == costs
    other = run.model_copy(update={"n_layer": 7})
    assert measure._key(other) != measure._key(run)


@pytest.mark.slow
def test_the_plan_is_within_15_percent_of_a_real_cell(tmp_path):
    """In CPU time, which other processes hardly change; on an idle machine by the clock too."""
    idle = os.getloadavg()[0] / os.cpu_count() <= IDLE
    for name in ("src", "metrics/data", "data/tokens/tiny"):
        if not (ROOT / name).exists():
            pytest.skip(f"needs {name}: make repro")
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path)

    def run(*arguments):
        return subprocess.check_output(
            (sys.executable, "-m", *arguments),
            cwd=tmp_path, env=ENVIRONMENT | {"PYTHONPATH": "src"}, text=True,
        )  # fmt: skip

    (found,) = json.loads(run("resablate", "plan", "--json", CELL))
    assert found["here"]["clock"] == "cpu"
    began, cpu_before = time.monotonic(), measure._cpu_of_children()
    run("resablate.stages.train", "tiny", "residualgpt", "full", "1337")
    elapsed, used = time.monotonic() - began, measure._cpu_of_children() - cpu_before
    print(f"planned {found['here']['seconds']:.1f} s, took {used:.1f} s of CPU, {elapsed:.1f} s")
    assert found["here"]["seconds"] == pytest.approx(used, rel=0.15)
    if idle:
        assert found["here"]["seconds"] == pytest.approx(elapsed, rel=0.15)
