"""The run: schedule, groups, accumulation, exact resume, thread counts, divergence."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from resablate import checkpoint, diagnostics, paths, runs
from resablate.files import whole
from resablate.model import GPT
from resablate.optimiser import AdamW
from resablate.progress import Progress
from resablate.train import DivergedError, Trainer, learning_rate
from toys import toy_run, toy_tokens, toy_trainer


def run_to_end(trainer, state):
    trainer.train(Progress("toy", trainer.run.steps, trainer.step, 1), state)
    return trainer


def weights(trainer):
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters()}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


# -- schedule and optimiser ------------------------------------------------------------------------


def test_learning_rate_by_hand():
    run = toy_run(lr=1.0, min_lr=0.1, warmup_steps=3, steps=8)
    rates = [learning_rate(run, step) for step in range(8)]
    # warm-up 1/4, 2/4, 3/4; then .1 + .45 (1 + cos(pi k/4)) for k = 0..4
    half = 0.45 * math.sqrt(0.5)
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 0.55 + half, 0.55, 0.55 - half, 0.1])
    constant = toy_run("nanogpt", lr=0.5)
    assert {learning_rate(constant, step) for step in range(12)} == {0.5}


def test_weight_decay_is_on_matrices_only_and_a_tied_one_counts_once():
    run = toy_run()
    (decay, decayed), (no_decay, others) = AdamW(GPT(run, 13), run).groups
    assert (decay, no_decay) == (0.1, 0.0)
    matrices = ("attn.qkv.weight", "attn.proj.weight", "ffn.up.weight", "ffn.down.weight")
    assert decayed == ["wte", "wpe"] + [f"blocks.{i}.{name}" for i in range(2) for name in matrices]
    assert len(others) == 2 * (2 + 2 + 4) + 2  # per block: two LayerNorms and four biases; ln_f
    assert all(
        name.endswith(("bias", "ln_1.weight", "ln_2.weight", "ln_f.weight")) for name in others
    )


def test_optimiser_has_the_bits_of_torchs_fused_adamw():
    run = toy_run("nanogpt", lr=0.01)
    model, other = GPT(run, 13), GPT(run, 13)
    model.init(1)
    other.init(1)
    ours = AdamW(model, run)
    groups = [
        {"params": [ours_p for ours_p in other.parameters() if ours_p.dim() == 2]},
        {
            "params": [ours_p for ours_p in other.parameters() if ours_p.dim() == 1],
            "weight_decay": 0.0,
        },
    ]
    settings = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "fused": True}
    reference = torch.optim.AdamW(groups, **settings)
    generator = torch.Generator().manual_seed(1)
    for n in range(1, 6):
        for a, b in zip(model.parameters(), other.parameters(), strict=True):
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        ours.step(n, 0.01, torch.tensor(1.0))
        reference.step()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_accumulated_micro_batches_make_the_gradient_of_the_large_batch(tmp_path):
    split = toy_trainer(tmp_path, batch_size=2, accumulation=4, dropout=0.0)
    loss, _ = split.gradient()
    windows = [split.tokens.train_batch(3, i, 2) for i in range(4)]
    tokens, targets = (torch.cat(part) for part in zip(*windows, strict=True))
    whole_loss = split.model.loss(tokens, targets)
    expected = torch.autograd.grad(whole_loss, list(split.model.parameters()))
    torch.testing.assert_close(loss, whole_loss.detach())
    for p, grad in zip(split.model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, grad, rtol=1e-4, atol=1e-7)


def test_clipping_scales_the_whole_gradient_to_the_limit(tmp_path):
    trainer = toy_trainer(tmp_path, grad_clip=1e-3)
    loss, norm = trainer.gradient()
    assert norm > 1e-3
    before = [p.grad.clone() for p in trainer.model.parameters()]
    trainer.update(loss, norm)
    for p, grad in zip(trainer.model.parameters(), before, strict=True):
        torch.testing.assert_close(p.grad, grad * (1e-3 / norm), rtol=1e-2, atol=1e-12)


# -- exactness -------------------------------------------------------------------------------------


@pytest.mark.parametrize("impl", ["residualgpt", "nanogpt"])
@pytest.mark.parametrize("stop", [1, 5, 7])  # before, at and after an evaluation
def test_a_resumed_run_is_the_run_that_was_never_stopped(tmp_path, monkeypatch, impl, stop):
    straight = run_to_end(toy_trainer(tmp_path, impl=impl), tmp_path / "unused")
    first = toy_trainer(tmp_path, impl=impl)

    class KilledError(Exception):
        pass

    def kill(step, loss=None):
        if step == stop:
            raise KilledError

    progress = Progress("toy", 12, 0, 1)
    monkeypatch.setattr(progress, "update", kill)
    with pytest.raises(KilledError):
        first.train(progress, tmp_path / "unused")
    first.drain()
    checkpoint.write_state(tmp_path / "state", first.state())
    second = toy_trainer(tmp_path, impl=impl)
    second.resume(checkpoint.read_state(tmp_path / "state"))
    assert second.step == stop
    run_to_end(second, tmp_path / "unused")
    assert_same(weights(straight), weights(second))
    assert straight.curve == second.curve
    assert straight.trail.lines == second.trail.lines
    assert_same(checkpoint.collect(straight.optimiser), checkpoint.collect(second.optimiser))


SHAPES = {
    "tiny": {"n_embd": 96, "n_head": 4, "block_size": 64, "batch_size": 16, "steps": 4},
    "gpt10m": {"n_embd": 384, "n_head": 6, "block_size": 256, "batch_size": 2, "steps": 1},
}


@pytest.mark.parametrize("impl", ["residualgpt", "nanogpt"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("scale", SHAPES)
def test_training_does_not_depend_on_the_thread_count(tmp_path, scale, dtype, impl):
    shape = SHAPES[scale] | {"warmup_steps": 0, "dropout": 0.2}
    results, before = [], torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        trainer = toy_trainer(tmp_path, impl=impl, dtype=dtype, **shape)
        results.append(run_to_end(trainer, tmp_path / "unused"))
    torch.set_num_threads(before)
    for other in results[1:]:
        assert_same(weights(results[0]), weights(other))
        assert results[0].curve == other.curve
        assert results[0].trail.lines == other.trail.lines


def test_evaluation_does_not_disturb_training(tmp_path):
    often = run_to_end(toy_trainer(tmp_path, eval_interval=1, impl="nanogpt"), tmp_path / "unused")
    seldom = run_to_end(
        toy_trainer(tmp_path, eval_interval=12, impl="nanogpt"), tmp_path / "unused"
    )
    assert_same(weights(often), weights(seldom))
    assert often.curve[-1]["val_loss"] == seldom.curve[-1]["val_loss"]


def test_fixed_validation_batches_are_the_same_for_every_seed_and_redrawn_ones_are_not(tmp_path):
    a, b = toy_trainer(tmp_path, seed=1), toy_trainer(tmp_path, seed=2)
    assert all(torch.equal(x.tokens, y.tokens) for x, y in zip(a.fixed, b.fixed, strict=True))
    tokens = toy_tokens(tmp_path)
    draws = [tokens.val_batches(1, step, 2, 4)[0].tokens for step in (0, 5)]
    assert not torch.equal(*draws)


def test_whole_validation_split_is_seen_once(tmp_path):
    tokens = toy_tokens(tmp_path, n=1990)  # 199 validation tokens: 24 windows of 8 and a rest of 6
    batches = tokens.whole_val(10)
    seen = torch.cat([batch.targets.flatten() for batch in batches])
    assert seen.tolist() == tokens._memory("val")[1:].tolist()
    assert batches[-1].tokens.shape == (1, 6)


# -- divergence ------------------------------------------------------------------------------------


def test_a_diverged_run_is_recorded_and_the_step_named(tmp_path):
    trainer = toy_trainer(tmp_path)
    trainer.step, original = 0, trainer.gradient

    def poisoned(*note):
        loss, norm = original(*note)
        return (loss * math.nan if trainer.step == 7 else loss), norm

    trainer.gradient = poisoned
    with pytest.raises(DivergedError) as caught:
        run_to_end(trainer, tmp_path / "unused")
    assert caught.value.step == 7
    document = runs.describe(trainer, 7)
    assert document["status"] == "diverged"
    assert document["best_val_loss"] is None
    assert "NaN" not in json.dumps(document)


def test_an_infinite_gradient_norm_does_not_pass(tmp_path):
    trainer = toy_trainer(tmp_path)
    trainer.pending += [torch.tensor([1.0, 2.0]), torch.tensor([1.0, math.inf])]
    trainer.step = 2
    trainer.drain()  # not the clock, the next row of the curve ends the run
    trainer.pending += [torch.tensor([1.0, 2.0])] * 3
    trainer.step = 5
    with pytest.raises(DivergedError) as caught:
        trainer.drain()
    assert caught.value.step == 1


# -- the outs --------------------------------------------------------------------------------------


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out"
    path.write_text("before")

    def fail_half_way():
        with whole(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_execute_leaves_the_outs_and_no_state(tmp_path, monkeypatch):
    tokens = toy_tokens(tmp_path / "tokens")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("resablate.train.SAVE_SECONDS", 0.0)
    outs = paths.run("main", "tiny", "residualgpt-full", 3)
    runs.execute("toy", toy_run(), 3, tokens, outs)
    document = json.loads(outs.metrics.read_text())
    assert document["status"] == "finished"
    assert document["n_evaluations"] == 4  # steps 0, 5, 10, 12
    lines = outs.curve.read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["step", "0", "5", "10", "12"]
    with safe_open(outs.model, "pt") as file:
        assert "head" not in file.keys()  # noqa: SIM118
        described = json.loads(file.metadata()["resablate"])
    assert described["run"]["n_layer"] == 2
    assert described["vocab_sha256"] == tokens.sha256["vocab.json"]
    assert list((tmp_path / ".resume").iterdir()) == []
    beside = json.loads((paths.ENVIRONMENTS / "runs/main/tiny/residualgpt-full/3.json").read_text())
    assert beside["from_step"] == 0
    record = json.loads((paths.ENVIRONMENTS / f"{beside['environment']}.json").read_text())
    assert record["torch"] == torch.__version__
    assert record["linear_kernel"] in ("onednn", "mkl")
    for copy in range(4, 8):
        again = paths.run("main", "tiny", "residualgpt-full", copy)
        runs.execute("toy", toy_run(), 3, tokens, again)
        for a, b in zip(outs, again, strict=True):
            assert a.read_bytes() == b.read_bytes()


def test_a_run_at_work_can_be_looked_at(tmp_path, monkeypatch):
    tokens = toy_tokens(tmp_path / "tokens")
    monkeypatch.chdir(tmp_path)
    seen = []

    class Watched(Trainer):
        def update(self, *gradient):
            files = sorted(Path(".resume").iterdir())
            seen.append([file.read_text() for file in files])
            super().update(*gradient)

    outs = paths.run("main", "tiny", "residualgpt-full", 3)
    runs.execute("toy", toy_run(), 3, tokens, outs, Watched)
    curve, named = seen[7]  # after the rows of steps 0 and 5
    assert json.loads(named) == {"name": "toy", "steps": 12}
    assert outs.curve.read_text().startswith(curve)
    assert [line.split(",")[0] for line in curve.splitlines()] == ["step", "0", "5"]


# -- diagnostics -----------------------------------------------------------------------------------


def test_gradient_norms_see_what_float32_cannot(tmp_path):
    trainer = toy_trainer(tmp_path)
    for p in trainer.model.parameters():
        p.grad = torch.full_like(p, 1e-23)
    norms = diagnostics.gradient_norms(trainer.model)
    n = sum(p.numel() for p in trainer.model.blocks[0].parameters())
    assert norms["grad_norm_block0"] == pytest.approx(1e-23 * math.sqrt(n), rel=1e-6)


def test_hidden_state_measures_by_hand(tmp_path):
    same = torch.tensor([[[3.0, 4.0], [3.0, 4.0], [3.0, 4.0]]])
    crossed = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    model = toy_trainer(tmp_path, mixer="conv").model
    row = diagnostics.activations(model, diagnostics.Seen([same, crossed], [same], []))
    assert row["hidden_norm_0"] == 5.0
    assert row["token_cosine_0"] == pytest.approx(1.0)
    assert row["token_cosine_1"] == 0.0
    assert row["effective_rank_0"] == pytest.approx(1.0)
    assert row["effective_rank_1"] == 2.0
    assert row["norm_var_over_eps"] == pytest.approx(0.25 / 1e-5)


def test_adam_measures_by_hand(tmp_path):
    trainer = toy_trainer(tmp_path, adam_eps=1e-8)
    optimiser = trainer.optimiser
    nothing = {"update_ratio": None, "adam_eps_share": None}
    assert diagnostics.optimiser_state(optimiser, 0, 0.5) == nothing
    for p in optimiser.parameters.values():
        p.grad = torch.full_like(p, 1.0)
    blocks = [p for name, p in optimiser.parameters.items() if name.startswith("blocks.")]
    blocks[0].grad.fill_(5e-8)  # sqrt(v_hat) = 5e-8 < 10 eps
    optimiser.step(1, 0.5, torch.tensor(1.0))
    for p in blocks:
        p.data.fill_(2.0)
    row = diagnostics.optimiser_state(optimiser, 1, 0.5)
    share = blocks[0].numel() / sum(p.numel() for p in blocks)
    assert row["adam_eps_share"] == share
    # one step moves each element by lr (by lr 5/6 where eps weighs in): RMS .5 over RMS 2
    mean_square = 1 - share + share * (5 / 6) ** 2
    assert row["update_ratio"] == pytest.approx(0.25 * math.sqrt(mean_square), rel=1e-4)
