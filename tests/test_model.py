"""The model against independent implementations, and its kernels against float64."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import erf

from resablate import ops
from resablate.bench.plain import PlainGPT
from resablate.dropout import Masks
from resablate.model import GPT, Output
from toys import CPU, VOCAB, toy_run

CONFIGS = {"full": (1, 1), "attn_only": (1, 0), "ffn_only": (0, 1), "no_res": (0, 0)}
TOKENS = torch.tensor([[1, 5, 0, 12, 3, 3, 7, 2], [4, 4, 4, 9, 8, 11, 10, 6]])


def make(impl: str = "residualgpt", config: str = "full", scramble: bool = True, **changes) -> GPT:
    """Return an initialised model; scrambled, so that biases and LayerNorms matter too."""
    model = GPT(toy_run(impl, config, **changes), VOCAB)
    model.init(11)
    if scramble:
        generator = torch.Generator().manual_seed(1)
        for p in model.parameters():
            p.data += 0.1 * torch.randn(p.shape, generator=generator)
    return model


# -- GPT-2's forward pass in numpy, written from the GPT-2 report's description, float64 -----------


def np_norm(x, p, name):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return scaled * p[f"{name}.weight"] + p[f"{name}.bias"]


def np_dense(x, p, name):
    return np.einsum("tc,dc->td", x, p[f"{name}.weight"]) + p[f"{name}.bias"]


def np_attention(x, p, name, n_head):
    q, k, v = np.split(np_dense(x, p, f"{name}.qkv"), 3, axis=-1)
    size, heads = x.shape[1] // n_head, []
    for h in range(n_head):
        part = slice(h * size, (h + 1) * size)
        out = np.zeros((len(x), size))
        for t in range(len(x)):  # position t looks at positions 0..t
            score = k[: t + 1, part] @ q[t, part] / math.sqrt(size)
            weight = np.exp(score - score.max())
            out[t] = (weight / weight.sum()) @ v[: t + 1, part]
        heads.append(out)
    return np_dense(np.concatenate(heads, -1), p, f"{name}.proj")


def np_ffn(x, p, name):
    up = np_dense(x, p, f"{name}.up")
    return np_dense(0.5 * up * (1 + erf(up / math.sqrt(2))), p, f"{name}.down")


def np_gpt(model, row, attn_skip, ffn_skip):
    p = {name: t.detach().numpy().astype(np.float64) for name, t in model.named_parameters()}
    x = p["wte"][row] + p["wpe"][: len(row)]
    for i in range(model.run.n_layer):
        b = f"blocks.{i}"
        x = attn_skip * x + np_attention(np_norm(x, p, f"{b}.ln_1"), p, f"{b}.attn", 2)
        x = ffn_skip * x + np_ffn(np_norm(x, p, f"{b}.ln_2"), p, f"{b}.ffn")
    return np_norm(x, p, "ln_f") @ p.get("head", p["wte"]).T


@pytest.mark.parametrize("impl", ["residualgpt", "nanogpt"])
@pytest.mark.parametrize("config", CONFIGS)
def test_forward_equals_an_independent_gpt2(impl, config):
    model = make(impl, config)
    logits = model(TOKENS).logits.detach().numpy()
    for row, got in zip(TOKENS.numpy(), logits, strict=True):
        expected = np_gpt(model, row, *CONFIGS[config])
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


def test_a_fractional_skip_scales_the_connection():
    model = make(attn_skip=0.3, ffn_skip=0.6)
    got = model(TOKENS).logits[0].detach().numpy()
    np.testing.assert_allclose(
        got, np_gpt(model, TOKENS[0].numpy(), 0.3, 0.6), rtol=2e-5, atol=2e-5
    )


def test_no_residual_at_one_token_is_a_chain_of_matrices():
    """One token attends to itself only: attention is proj(value), whatever query and key are."""
    model = make(config="no_res", n_layer=1)
    p = {name: t.detach().double() for name, t in model.named_parameters()}

    def norm(x, name):
        x = x - x.mean()
        return x / (x.square().mean() + 1e-5).sqrt() * p[f"{name}.weight"] + p[f"{name}.bias"]

    x = p["wte"][3] + p["wpe"][0]
    w, b = p["blocks.0.attn.qkv.weight"][32:], p["blocks.0.attn.qkv.bias"][32:]  # the value rows
    x = p["blocks.0.attn.proj.weight"] @ (w @ norm(x, "blocks.0.ln_1") + b)
    x = norm(x + p["blocks.0.attn.proj.bias"], "blocks.0.ln_2")
    x = p["blocks.0.ffn.up.weight"] @ x + p["blocks.0.ffn.up.bias"]
    x = p["blocks.0.ffn.down.weight"] @ (0.5 * x * (1 + torch.erf(x / math.sqrt(2))))
    x = p["wte"] @ norm(x + p["blocks.0.ffn.down.bias"], "ln_f")
    torch.testing.assert_close(
        model(torch.tensor([[3]])).logits[0, 0].double(), x, rtol=1e-5, atol=1e-5
    )


def test_later_tokens_do_not_change_earlier_logits():
    model, other = make(), TOKENS.clone()
    other[:, 5:] = 0
    assert torch.equal(model(TOKENS).logits[:, :5], model(other).logits[:, :5])


# -- initialisation --------------------------------------------------------------------------------


@pytest.mark.parametrize(("scaled", "factor"), [(False, 1.0), (True, 0.5)])  # 1/sqrt(2*2) = .5
def test_every_matrix_starts_with_its_std(scaled, factor):
    model = make(scramble=False, n_embd=64, scale_residual_init=scaled)
    for name, p in model.named_parameters():
        if p.dim() == 1:
            assert torch.all(p == (0 if name.endswith("bias") else 1)), name
        else:
            residual = name.endswith(("proj.weight", "down.weight"))
            std = 0.02 * (factor if residual else 1.0)
            assert abs(p.std().item() / std - 1) < 5 / math.sqrt(2 * p.numel()), name


def test_implementations_share_every_weight_but_the_head():
    tied, untied = (
        dict(make(impl, scramble=False).named_parameters()) for impl in ("residualgpt", "nanogpt")
    )
    assert set(untied) - set(tied) == {"head"}
    assert all(torch.equal(tied[name], untied[name]) for name in tied)


@pytest.mark.parametrize(
    ("tied", "bias", "millions"),
    [(True, True, 10.771), (True, False, 10.745), (False, True, 10.796)],
)
def test_parameter_count_of_the_papers_model(tied, bias, millions):
    run = toy_run(n_layer=6, n_head=6, n_embd=384, block_size=256, tie_weights=tied, bias=bias)
    count = sum(p.numel() for p in GPT(run, 65).parameters())
    assert round(count / 1e6, 3) == millions


def test_untied_head_has_no_bias_and_no_bias_means_none():
    names = [name for name, _ in make("nanogpt", bias=False, scramble=False).named_parameters()]
    assert not [name for name in names if name.endswith("bias")]


# -- gradients -------------------------------------------------------------------------------------


def gradients(model, loss) -> dict[str, torch.Tensor]:
    loss.backward()
    return {name: p.grad.double() for name, p in model.named_parameters()}


@pytest.mark.parametrize("attention", ["sdpa", "manual"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_equal_the_plain_steps_against_float64(attention, dtype):
    """Our step is as near to the float64 truth as the plain PyTorch step is."""
    changes = {"block_size": 150, "tie_weights": False, "attention": attention, "dropout": 0.0}
    ours, exact = make(dtype=dtype, **changes), PlainGPT(toy_run(**changes), VOCAB).double()
    plain = PlainGPT(toy_run(**changes), VOCAB)
    exact.load_state_dict({k: v.double() for k, v in ours.state_dict().items()})
    plain.load_state_dict(ours.state_dict())
    generator = torch.Generator().manual_seed(3)
    tokens, targets = torch.randint(0, VOCAB, (2, 3, 150), generator=generator)
    truth = gradients(exact, exact.loss(tokens, targets))
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
        loss = plain.loss(tokens, targets)
    reference = gradients(plain, loss)
    got = gradients(ours, ours.loss(tokens, targets))
    for name, expected in truth.items():
        scale = expected.norm()
        error, allowed = (
            (got[name] - expected).norm() / scale,
            (reference[name] - expected).norm() / scale,
        )
        assert error < 3 * allowed + 1e-6, (name, error, allowed)


@pytest.mark.parametrize("has_bias", [True, False])
def test_layer_norm_gives_the_gradients_of_float64_on_any_number_of_threads(has_bias):
    generator = torch.Generator().manual_seed(4)
    x, upstream = torch.randn(2, 3, 341, 40, generator=generator)
    weight, bias = torch.randn(2, 40, generator=generator)
    leaves = [x + 3.0, weight, *([bias] if has_bias else [])]

    def gradients_of(function, dtype):
        copies = [leaf.to(dtype, copy=True).requires_grad_() for leaf in leaves]
        out = function(copies[0], *copies[1:], *([] if has_bias else [None]))
        return torch.autograd.grad(out, copies, upstream.to(dtype))

    def exact(x, weight, bias):
        return F.layer_norm(x, (40,), weight, bias, 1e-5)

    found, before = [], torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(gradients_of(lambda *of: ops.layer_norm(*of, 1e-5), torch.float32))
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
    for got, *others, truth in zip(*found, gradients_of(exact, torch.float64), strict=True):
        assert all(torch.equal(got, other) for other in others)
        assert (got - truth).norm() < 3e-6 * truth.norm()


@pytest.mark.parametrize("T", [5, 64, 150])
def test_attention_kernels_agree_under_dropout_with_a_float64_reference(T):
    generator = torch.Generator().manual_seed(2)
    packed = torch.randn(3, T, 3 * 16, generator=generator)
    upstream = torch.randn(3, T, 16, generator=generator)
    run = toy_run(batch_size=3, block_size=T, dropout=0.3)
    masks = Masks(run, 1, 4, CPU)
    masks.hidden()  # the embedding's comes first
    keeps = masks.attention()
    whole = torch.zeros(6, T, T)
    for (first, end), keep in zip(ops.query_blocks(T), keeps, strict=True):
        whole[:, first:end, :end] = keep
    assert set(whole.unique().tolist()) <= {0.0, 1.0}

    def reference(qkv):
        q, k, v = (x.view(3, T, 2, 8).transpose(1, 2) for x in qkv.split(16, dim=-1))
        future = torch.ones(T, T).triu(1).bool()
        weight = (q @ k.transpose(-2, -1) / math.sqrt(8)).masked_fill(future, -math.inf).softmax(-1)
        return (weight * whole.double().view(3, 2, T, T) / 0.7 @ v).transpose(1, 2).flatten(2)

    leaf = packed.double().requires_grad_()
    expected = reference(leaf)
    expected.backward(upstream.double())
    for function in (ops.causal_attention, ops.manual_attention):
        got = packed.clone().requires_grad_()
        out = function(got, 2, keeps, 1 / 0.7)
        out.backward(upstream)
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(got.grad.double(), leaf.grad, rtol=1e-5, atol=1e-5)


def test_dropout_scales_what_it_keeps():
    run = toy_run(batch_size=8, block_size=8, dropout=0.25)
    out = Masks(run, 1, 0, CPU).hidden()
    kept = out[out != 0]
    assert torch.all(kept == 1 / (1 - 0.25))
    assert 713 < kept.numel() < 823  # 1024 x .75 and 4 standard deviations


def test_dropout_acts_on_every_site_and_not_in_evaluation():
    model = make(batch_size=2)
    masks = Masks(model.run, 1, 0, CPU)
    dropped = model.loss(TOKENS, TOKENS, masks)
    assert not list(masks._masks)  # embedding; weights and both outputs of each block
    assert dropped != model.loss(TOKENS, TOKENS)
    assert torch.equal(model.loss(TOKENS, TOKENS), model.loss(TOKENS, TOKENS))


def test_output_has_the_hidden_states_of_every_block():
    out = make()(TOKENS)
    assert isinstance(out, Output)
    assert len(out.hidden) == 3
    assert {tuple(h.shape) for h in out.hidden} == {(2, 8, 16)}
