"""Named differences of the model: each against an independent computation, or by hand."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from resablate import activations, diagnostics, mixing, ops, rng
from resablate.model import GPT
from resablate.optimiser import SGD
from test_model import TOKENS, make
from toys import VOCAB, toy_run, toy_trainer

DIFFERENCES = {
    "post_ln": {"block": "post_ln"},
    "parallel": {"block": "parallel"},
    "conv": {"mixer": "conv"},
    "mlp": {"mixer": "mlp"},
    "ssm": {"mixer": "ssm"},
    "rmsnorm": {"norm": "rmsnorm"},
    "swiglu": {"ffn": "swiglu"},
    "rope": {"position": "rope"},
    "diagonal": {"attention_pattern": "diagonal"},
    "strict": {"attention_pattern": "strict"},
    "shaped": {"attention_pattern": "shaped"},
    "value_residual": {"value_residual": True},
    "orthogonal": {"init": "orthogonal"},
    "gain": {"gain": 2.0},
    "init_gain": {"init_gain": 2.0},
    "sgd": {"optimiser": "sgd"},
    "perturbed": {"perturbation": 1},
}
everyone = pytest.mark.parametrize("changes", DIFFERENCES.values(), ids=DIFFERENCES)


def logits(model: GPT, tokens: torch.Tensor = TOKENS) -> torch.Tensor:
    with torch.no_grad():
        return model(tokens).logits


def short_run(folder, **changes) -> list[torch.Tensor]:
    """Return the weights after three updates under dropout."""
    trainer = toy_trainer(folder, dropout=0.2, **changes)
    while trainer.step < 3:
        trainer.update(*trainer.gradient())
    return [p.detach().clone() for p in trainer.optimiser.parameters.values()]


@everyone
@pytest.mark.parametrize("config", ["full", "no_res"])
def test_no_token_sees_a_later_one(changes, config):
    model = make(config=config, **changes)
    later = TOKENS.clone()
    later[:, 5:] = (later[:, 5:] + 1) % VOCAB
    assert torch.equal(logits(model)[:, :5], logits(model, later)[:, :5])
    assert not torch.equal(logits(model)[:, 5:], logits(model, later)[:, 5:])


@everyone
def test_same_weights_on_any_number_of_threads(changes, tmp_path):
    # Wide enough for PyTorch to share the work among threads.
    wide = {"n_embd": 64, "n_head": 4, "block_size": 64, "batch_size": 16}
    before = torch.get_num_threads()
    weights = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        weights.append(short_run(tmp_path / str(threads), threads=threads, **wide, **changes))
    torch.set_num_threads(before)
    assert all(map(torch.equal, *weights))


@everyone
def test_each_difference_makes_one(changes, tmp_path):
    if changes in ({"init_gain": 2.0}, {"optimiser": "sgd"}, {"perturbation": 1}):
        base, other = short_run(tmp_path / "a"), short_run(tmp_path / "b", **changes)
        assert not all(map(torch.equal, base, other))
    else:
        assert not torch.equal(logits(make()), logits(make(**changes)))


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"mixer": "conv"}, 0),
        ({"mixer": "mlp"}, -16),  # a bias of 2 C + C, not 3 C + C
        ({"mixer": "ssm"}, -2 * 16),  # 2 C
        ({"ffn": "swiglu"}, 3 * 16 * 43 + 2 * 43 + 16 - (8 * 16 * 16 + 5 * 16)),
        ({"norm": "rmsnorm"}, -2 * 16),
        ({"block": "post_ln"}, 0),
        ({"block": "parallel"}, 0),
        ({"attention_pattern": "shaped"}, 3 * 2),  # three factors a head
        ({"value_residual": True}, 0),
    ],
    ids=str,
)
def test_block_has_as_many_parameters(changes, more):
    def size(**changes):
        return sum(p.numel() for p in GPT(toy_run(**changes), VOCAB).blocks[0].parameters())

    assert size(**changes) - size() == more


# -- mixers ----------------------------------------------------------------------------------------


def test_convolution_sees_two_tokens_back():
    attn = make(mixer="conv").blocks[0].attn
    x = torch.randn(1, 8, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        y = attn(x, None, [])
        taps = F.linear(x, attn.taps.weight, attn.taps.bias)[0].view(8, 3, 16)
        expected = torch.stack([sum(taps[t - j, j] for j in range(3) if t >= j) for t in range(8)])
    expected = F.linear(expected, attn.proj.weight, attn.proj.bias)
    torch.testing.assert_close(y[0], expected, atol=1e-5, rtol=1e-5)


def test_position_blind_mixer_sees_one_token():
    model = make(mixer="mlp")
    other = TOKENS.clone()
    other[:, 2] = (other[:, 2] + 1) % VOCAB
    changed = (logits(model) != logits(model, other)).any(-1)
    assert changed.tolist() == [[t == 2 for t in range(8)]] * 2


def test_state_space_is_its_recurrence():
    generator = torch.Generator().manual_seed(0)
    weight, logit = torch.randn(2, 4, 5, generator=generator)
    x = torch.randn(3, 11, 4, generator=generator)
    y = mixing.causal_convolution(x, mixing.decaying(weight, logit, 11))
    state = torch.zeros(3, 4, 5, dtype=torch.float64)
    for t in range(11):
        state = logit.double().sigmoid() * state + x[:, t, :, None].double()
        expected = (weight.double() * state).sum(-1)
        torch.testing.assert_close(y[:, t].double(), expected, atol=1e-4, rtol=1e-4)


def test_decays_span_one_token_to_the_block():
    decay = torch.sigmoid(mixing.log_spaced_decays(16, 64).double()).view(16, 16)
    assert torch.equal(decay[0], decay[15])
    taus = -1 / decay[0].log()
    assert taus[0].item() == pytest.approx(1.0, rel=1e-5)
    assert taus[-1].item() == pytest.approx(64.0, rel=1e-4)
    assert (taus[1:] / taus[:-1]).std() < 1e-4


# -- attention -------------------------------------------------------------------------------------


def test_patterns_of_attention_by_hand():
    q = k = torch.zeros(1, 4, 2)  # equal scores
    rows = {
        "causal": [[1, 0, 0, 0], [1 / 2] * 2 + [0] * 2, [1 / 3] * 3 + [0], [1 / 4] * 4],
        "diagonal": np.eye(4),
        "strict": [[1, 0, 0, 0], [1, 0, 0, 0], [1 / 2] * 2 + [0] * 2, [1 / 3] * 3 + [0]],
    }
    for pattern, expected in rows.items():
        weights = ops.attention_weights(q, k, pattern)[0]
        torch.testing.assert_close(weights, torch.tensor(np.array(expected)).float())


def test_shaped_attention_starts_as_the_identity_on_values():
    model = make(scramble=False, attention_pattern="shaped")
    attn = model.blocks[0].attn
    x = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        values = F.linear(x, attn.qkv.weight, attn.qkv.bias)[..., 32:]
        expected = F.linear(values, attn.proj.weight, attn.proj.bias)
        torch.testing.assert_close(attn(x, None, []), expected, atol=1e-7, rtol=1e-5)


def test_shaped_attention_by_hand():
    qkv = torch.zeros(1, 2, 6)  # one head; values (1, 3) and (5, 7)
    qkv[0, :, 4:] = torch.tensor([[1.0, 3.0], [5.0, 7.0]])
    y = torch.full((1, 2, 2), 10.0)
    out = mixing.shaped(y, qkv, *torch.tensor([[2.0], [3.0], [1.0]]))
    # 3 y + 2 v - mean of the values so far, (1, 3) and (3, 5)
    assert out.tolist() == [[[31.0, 33.0], [37.0, 39.0]]]


def test_rotary_scores_depend_on_distance_only():
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 8, generator=generator)
    qkv = torch.cat([q, k, k]).expand(1, 12, 24)
    turned = mixing.rotate(qkv, 2, mixing.rotary_table(12, 4))
    queries, keys, values = ops.split_heads(turned, 2)
    scores = queries @ keys.transpose(1, 2)
    for distance in range(12):
        of_distance = scores.diagonal(offset=-distance, dim1=1, dim2=2)
        torch.testing.assert_close(of_distance, of_distance[:, :1].expand_as(of_distance))
    assert torch.equal(values, ops.split_heads(qkv, 2)[2])
    # the first pair of a head of 4 turns by 1 radian a token: elements 0 and 2
    x, y, t = q[0].item(), q[2].item(), 3
    expected = [x * math.cos(t) - y * math.sin(t), y * math.cos(t) + x * math.sin(t)]
    assert turned[0, t, [0, 2]].tolist() == pytest.approx(expected, rel=1e-5)


def test_value_residual_averages_with_block_0():
    model = make(value_residual=True)
    x = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        values: list[torch.Tensor] = []
        first = model.blocks[0].attn.packed(x, values)
        second = model.blocks[1].attn.packed(2 * x, values)
    own = [
        F.linear(f * x, b.attn.qkv.weight, b.attn.qkv.bias)
        for f, b in zip((1, 2), model.blocks, strict=True)
    ]
    torch.testing.assert_close(first, own[0])
    torch.testing.assert_close(second[..., 32:], 0.5 * (own[0] + own[1])[..., 32:])
    torch.testing.assert_close(second[..., :32], own[1][..., :32])


# -- blocks, norms, FFN ----------------------------------------------------------------------------


def test_blocks_by_their_formulas():
    x = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0))
    for kind in ("post_ln", "parallel"):
        block = make(config="attn_only", block=kind, gain=3.0).blocks[0]
        attn, ffn, one, two = block.attn, block.ffn, block.ln_1, block.ln_2
        with torch.no_grad():
            if kind == "post_ln":
                middle = one(x + 3 * attn(x, None, []))
                expected = two(3 * ffn(middle))
            else:
                expected = 0.5 * x + 3 * attn(one(x), None, []) + 3 * ffn(two(x))
            torch.testing.assert_close(block(x, None, []), expected, atol=1e-5, rtol=1e-5)


def test_rms_norm_and_swiglu_against_pytorch():
    block = make(norm="rmsnorm", ffn="swiglu").blocks[0]
    x = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0))
    expected = F.rms_norm(x, (16,), block.ln_1.weight, eps=1e-5)
    torch.testing.assert_close(block.ln_1(x), expected)
    gate, value = F.linear(x, block.ffn.up.weight, block.ffn.up.bias).split(43, -1)
    hidden = gate / (1 + torch.exp(-gate)) * value
    torch.testing.assert_close(block.ffn(x), block.ffn.down(hidden), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["gelu", "sigmoid"])
def test_activations_on_any_number_of_threads(name, monkeypatch):
    """With PyTorch's own GELU 7 threads change 65 of these elements, 3 threads none."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    function = getattr(activations, name)
    generator = torch.Generator().manual_seed(0)
    x, grad = torch.randn(2, 1024, 384, generator=generator)
    before, seen = torch.get_num_threads(), []
    for threads in (1, 2, 3, 5, 7):
        torch.set_num_threads(threads)
        at = x.clone().requires_grad_()
        y = function(at)
        y.backward(grad)
        seen.append((y.detach(), at.grad))
    torch.set_num_threads(before)
    for other in seen[1:]:
        assert all(map(torch.equal, seen[0], other))
    wide = x.double().requires_grad_()
    exact = getattr(torch, name, F.gelu)(wide)
    exact.backward(grad.double())
    torch.testing.assert_close(seen[0][0].double(), exact.detach(), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(seen[0][1].double(), wide.grad, atol=1e-6, rtol=1e-5)


# -- start and optimiser ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 12), (12, 5), (8, 8)])
def test_orthogonal_matrices(shape):
    q = rng.orthogonal(3, "name", shape).astype(np.float64)
    gram = q @ q.T if shape[0] <= shape[1] else q.T @ q
    np.testing.assert_allclose(gram, np.eye(min(shape)), atol=1e-6)
    assert not np.array_equal(q, rng.orthogonal(4, "name", shape))


def test_gains_at_start_reach_the_output_projections_alone():
    base, scaled = (make(scramble=False, **c) for c in ({}, {"init_gain": 2.0}))
    for (name, a), b in zip(base.named_parameters(), scaled.parameters(), strict=True):
        factor = 2.0 if name.endswith(("proj.weight", "down.weight")) else 1.0
        torch.testing.assert_close(b, factor * a)


def test_perturbation_moves_one_weight_by_an_ulp():
    weights = {
        k: torch.cat(
            [p.detach().view(-1) for p in make(scramble=False, perturbation=k).parameters()]
        )
        for k in range(4)
    }
    places = []
    for k in (1, 2, 3):
        (place,) = (weights[k] != weights[0]).nonzero()
        moved, was = weights[k][place], weights[0][place]
        assert torch.equal(moved, torch.nextafter(was, torch.tensor([math.inf])))
        places.append(place.item())
    assert len(set(places)) == 3


def test_sgd_is_pytorchs(tmp_path):
    run = {"optimiser": "sgd", "beta1": 0.9, "weight_decay": 0.1}
    trainer, other = toy_trainer(tmp_path, **run), toy_trainer(tmp_path, **run)
    assert isinstance(trainer.optimiser, SGD)
    reference = torch.optim.SGD(other.model.parameters(), lr=0.1, momentum=0.9)
    decayed = [p for p in other.model.parameters() if p.dim() >= 2]
    for n in range(4):
        generator = torch.Generator().manual_seed(n)
        for p, q in zip(trainer.model.parameters(), other.model.parameters(), strict=True):
            p.grad = torch.randn(p.shape, generator=generator)
            q.grad = p.grad / 2
        trainer.optimiser.step(n + 1, 0.1, torch.tensor(2.0))
        with torch.no_grad():
            for p in decayed:
                p.mul_(1 - 0.1 * 0.1)
        reference.step()
    for p, q in zip(trainer.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_runs_resume_to_the_same_bits(name, tmp_path):
    whole = toy_trainer(tmp_path, optimiser=name)
    while whole.step < 6:
        if whole.step == 3:
            state = whole.state()
            kept = {k: t.clone() for k, t in state.tensors.items()}
        whole.update(*whole.gradient())
    resumed = toy_trainer(tmp_path, optimiser=name)
    resumed.resume(state._replace(tensors=kept, document=state.document | {"step": 3}))
    while resumed.step < 6:
        resumed.update(*resumed.gradient())
    for p, q in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixer": "conv", "position": "rope"}, "position: rope needs mixer attention, not conv"),
        ({"mixer": "mlp", "value_residual": True}, "value_residual: True needs mixer attention"),
        ({"mixer": "ssm", "attention_pattern": "strict"}, "attention_pattern: strict needs"),
        (
            {"n_embd": 6, "n_head": 2, "position": "rope"},
            "needs an even n_embd / n_head, not 6 / 2",
        ),
    ],
    ids=str,
)
def test_impossible_together(changes, message):
    with pytest.raises(ValidationError, match=message):
        toy_run(**changes)


# -- what is measured ------------------------------------------------------------------------------


def test_self_attention_and_variance_by_hand():
    model = make(scramble=False, n_layer=1)
    seen = diagnostics.look(model, TOKENS)
    flat = seen._replace(mixed=[torch.zeros_like(x) for x in seen.mixed])
    row = diagnostics.activations(model, flat)
    # zero queries and keys: token t gives itself 1 / (t + 1)
    assert row["attention_self_0"] == pytest.approx(np.mean([1 / t for t in range(2, 9)]))
    variances = [x.double().var(-1, correction=0).mean().item() for x in seen.normed]
    assert len(variances) == 3
    assert row["norm_var_over_eps"] == pytest.approx(min(variances) / 1e-5)


def test_looking_leaves_nothing_behind():
    model = make()
    before = logits(model)
    seen = diagnostics.look(model, TOKENS)
    assert torch.equal(seen.mixed[1], model.blocks[1].ln_1(seen.hidden[1]))
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert torch.equal(logits(model), before)


def test_gradient_norms_of_single_matrices(tmp_path):
    trainer = toy_trainer(tmp_path)
    trainer.gradient()
    row = diagnostics.gradient_norms(trainer.model)
    qkv = trainer.model.blocks[1].attn.qkv.weight.grad.double()
    for i, name in enumerate("qkv"):
        expected = qkv[16 * i : 16 * (i + 1)].norm().item()
        assert row[f"grad_norm_block1_{name}"] == pytest.approx(expected)
    down = trainer.model.blocks[0].ffn.down.weight.grad.double().norm().item()
    assert row["grad_norm_block0_down"] == pytest.approx(down)
    matrices = {key for key in row if key.startswith("grad_norm_block0_")}
    assert matrices == {f"grad_norm_block0_{m}" for m in ("q", "k", "v", "proj", "up", "down")}
