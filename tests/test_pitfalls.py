"""Pitfalls of this science, with the right values: units, evaluation, AdamW, data, records."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file

import fake_runs
from resablate import checkpoint, environment, params, runs, studies
from resablate.data import Tokens
from resablate.errors import UserError
from resablate.model import GPT
from resablate.optimiser import AdamW
from resablate.progress import Progress
from resablate.stages import aggregate, figures
from toys import CPU, VOCAB, toy_run, toy_tokens, toy_trainer

ROOT = Path(__file__).parents[1]
CONFIGURE = """\
import json, os, torch
from resablate import environment, params
torch.cuda.is_available = lambda: True
run = params.load().resolve("gpt10m", "residualgpt", "full")
device = environment.configure(run)
print(json.dumps([
    device.type, os.environ["CUBLAS_WORKSPACE_CONFIG"],
    torch.are_deterministic_algorithms_enabled(),
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32,
    torch.backends.cuda.cudnn_sdp_enabled(),
]))
"""


def trained(trainer):
    trainer.train(Progress("toy", trainer.run.steps, 0, 1), Path("unused"))
    return trainer


# -- evaluation ------------------------------------------------------------------------------------


def test_one_evaluation_twice_is_bit_equal(tmp_path):
    trainer = toy_trainer(tmp_path, dropout=0.5)
    assert trainer.evaluate() == trainer.evaluate()


def test_loss_over_the_validation_split_does_not_depend_on_the_evaluation_batch(tmp_path):
    trainer = toy_trainer(tmp_path)
    of_sizes = [trainer.loss_over(trainer.tokens.whole_val(size)) for size in (1, 7, 64)]
    assert of_sizes == pytest.approx([of_sizes[0]] * 3, rel=1e-6)


def test_evaluation_is_counted_in_tokens_and_bytes(tmp_path):
    trainer = trained(toy_trainer(tmp_path))
    trainer.tokens.vocab |= {"val_tokens": 200, "val_bytes": 500}  # 2.5 bytes a token
    document = runs.describe(trainer, None)
    assert document["eval_tokens"] == 2 * 4 * 8  # batches x sequences x tokens
    bits_per_token = document["full_val_loss"] / math.log(2)
    assert document["bits_per_byte"] == pytest.approx(bits_per_token / 2.5)
    assert document["perplexity"] == math.exp(document["best_val_loss"])


def test_best_and_final_are_both_reported(tmp_path):
    trainer = trained(toy_trainer(tmp_path))
    for row, loss in zip(trainer.curve, (4.0, 1.5, 3.0, 2.0), strict=True):
        row["val_loss"] = loss
    document = runs.describe(trainer, None)
    assert (document["best_val_loss"], document["best_step"]) == (1.5, 5)
    assert document["final_val_loss"] == 2.0


def test_each_table_says_which_loss_it_uses():
    tables = sorted((ROOT / "metrics/tables").glob("table*.md"))
    assert len(tables) >= 3
    for table in tables:
        text = table.read_text(encoding="utf-8")
        assert "best val" in text.lower().split("\n|---")[0], table.name
        assert "Best is the minimum over a run's evaluations, which biases it downwards" in text


def test_figures_never_mix_tokens_of_two_kinds_on_an_axis(root):
    fake_runs.make(root, scale=["tiny", "tiny_owt"], impl=["residualgpt"], seed=[1, 2])
    aggregate.main()
    data = figures.load()
    assert {run.key.scale for run in data.runs} == {"tiny"}
    assert data.floor == fake_runs.FLOOR


# -- optimiser -------------------------------------------------------------------------------------


def moved(gradients: list[float], **changes: object) -> torch.Tensor:
    """Return where AdamW takes a weight of 0 by these gradients at lr 1."""
    run = toy_run(weight_decay=0.0, **changes)
    model = GPT(run, VOCAB)
    optimiser, weight = AdamW(model, run), model.wte
    for p in model.parameters():
        p.data.zero_()
    for n, gradient in enumerate(gradients, 1):
        for p in model.parameters():
            p.grad = torch.full_like(p, gradient)
        optimiser.step(n, 1.0, torch.tensor(1.0))
    return weight[0, 0].item()


def test_adamw_absorbs_a_gain_on_gradients_unless_eps_rules():
    gradients = [1e-3, -3e-3, 2e-3, 5e-4]
    louder = [1024 * g for g in gradients]  # a power of 2: no rounding
    assert moved(gradients, adam_eps=1e-30) == moved(louder, adam_eps=1e-30)
    assert abs(moved(gradients, adam_eps=1e-2)) < 0.5 * abs(moved(louder, adam_eps=1e-2))


@pytest.mark.parametrize(
    ("gradient", "share"), [(1e-6, 100 / 101), (1e-8, 1 / 2), (1e-10, 1 / 101)]
)
def test_eps_takes_half_of_the_step_at_a_gradient_of_its_size(gradient, share):
    assert moved([gradient], adam_eps=1e-8) == pytest.approx(-share, rel=1e-4)


def test_clipping_is_counted_and_norms_are_those_before_it(tmp_path):
    clipped, free = (trained(toy_trainer(tmp_path, grad_clip=c)) for c in (1e-6, 1e6))
    assert [row["clip_fraction"] for row in clipped.curve] == [None, 1.0, 1.0, 1.0]
    assert [row["clip_fraction"] for row in free.curve] == [None, 0.0, 0.0, 0.0]
    first, second = clipped.curve[0], free.curve[0]
    norms = [key for key in first if key.startswith("grad_norm")]
    assert {key: first[key] for key in norms} == {key: second[key] for key in norms}
    assert first["grad_norm"] > 1e-2


def test_gradient_norms_are_of_the_whole_accumulated_batch(tmp_path):
    one = toy_trainer(tmp_path, batch_size=4, accumulation=1, dropout=0.0)
    split = toy_trainer(tmp_path, batch_size=1, accumulation=4, dropout=0.0)
    windows = [split.tokens.train_batch(3, i, 1) for i in range(4)]
    one.tokens.train_batch = lambda *_: type(windows[0])(
        *(torch.cat(part) for part in zip(*windows, strict=True))
    )
    norms = []
    for trainer in (one, split):
        trainer.gradient()
        norms.append([p.grad.double().norm().item() for p in trainer.model.parameters()])
    assert norms[0] == pytest.approx(norms[1], rel=1e-4, abs=1e-7)


def test_each_configuration_has_a_sweep_of_learning_rates_before_it_cannot_train():
    declared = studies.load(ROOT / "studies/params.yaml")
    root = params.load(ROOT / "params.yaml")
    rates: dict[str, set[float]] = {}
    for name, study in declared.studies.items():
        for arm in declared.arms(name) if "lr" in study.axes else ():
            config = study.cell(arm.levels)[2]
            rates.setdefault(config, set()).add(declared.resolve(root, name, arm).lr)
    assert rates.keys() == root.configs.keys()
    assert min(map(len, rates.values())) >= 3


# -- data, weights, record -------------------------------------------------------------------------


def change_vocabulary(folder: Path, **values: object) -> None:
    file = folder / "vocab.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_memory_is_flat_over_ten_thousand_batches(tmp_path):
    toy_tokens(tmp_path)
    n = 32 * 2**20
    with (tmp_path / "train.bin").open("wb") as file:
        file.truncate(2 * n)
    change_vocabulary(tmp_path, train_tokens=n)
    tokens = Tokens(tmp_path, 8)
    process = psutil.Process()
    tokens.train_batch(1, 0, 4)
    before = process.memory_info().rss
    for position in range(10_000):
        tokens.train_batch(1, position, 4)
    assert process.memory_info().rss - before < 8 * 2**20


def test_a_stale_or_damaged_vocabulary_beside_new_tokens_is_refused(tmp_path):
    toy_tokens(tmp_path)
    change_vocabulary(tmp_path, val_tokens=201)
    with pytest.raises(UserError, match=r"tells of .*'val': 402\} bytes of tokens, not .*400\}"):
        Tokens(tmp_path, 8)
    for damaged in ("", "[]", "{}", '{"train_tokens": null}'):
        (tmp_path / "vocab.json").write_text(damaged)
        with pytest.raises(UserError, match=r"vocab\.json: damaged .*dvc repro -f"):
            Tokens(tmp_path, 8)


def test_equal_weights_have_equal_files_whose_names_are_the_plain_models(tmp_path):
    models = [GPT(toy_run("nanogpt"), VOCAB) for _ in range(3)]
    for number, model in enumerate(models):
        model.init(5)
        checkpoint.write_weights(tmp_path / str(number), model, "vocabulary")
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    weights = load_file(tmp_path / "0")
    assert list(weights) == sorted(name for name, _ in models[0].named_parameters())
    models[2].init(6)
    models[2].load_state_dict(weights)  # strict: no prefix of a wrapper, nothing missing
    assert all(torch.equal(p, weights[name]) for name, p in models[2].named_parameters())


def test_on_a_gpu_every_switch_that_decides_bits_is_set():
    done = subprocess.run(
        (sys.executable, "-W", "ignore", "-c", CONFIGURE), cwd=ROOT,
        env={"PYTHONPATH": "src"}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == ["cuda", ":4096:8", True, False, False, False]


def test_the_record_names_each_choice_that_decides_bits():
    record = environment.record(CPU)
    assert record["threads"] == torch.get_num_threads()
    assert record["numpy"] == np.__version__
    assert record.keys() >= {
        "cpu", "instruction_set", "pins", "torch", "libraries", "linear_kernel",
        "deterministic_algorithms", "device", "ranks",
    }  # fmt: skip
