"""params.yaml: every mistake is one line that names the key, the value and what is allowed."""

import subprocess
import sys
from pathlib import Path

import pytest

from resablate import params
from resablate.errors import UserError
from resablate.stages import check

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "params.yaml").read_text(encoding="utf-8")


def load(tmp_path: Path, old: str = "", new: str = "") -> params.Params:
    """Load params.yaml with one replacement."""
    assert old in TEXT
    path = tmp_path / "params.yaml"
    path.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    return params.load(path)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("\ndtype: null", "\ndtype: null\ndtyp: 1", ["dtyp", "unknown key"]),
        ("  bias: true", "  bias: true\n  biass: true", ["base.biass", "unknown key"]),
        ("\nseed: 1337", "\nseed: 1337\nseed: 7", ["line 11", "duplicate key", "seed", "7"]),
        ("\nseed: 1337", "\nseed: abc", ["seed", "'abc'", "integer"]),
        ("\nseed: 1337", "\nseed: -1", ["seed", "-1", "greater than or equal to 0"]),
        ("\nseed: 1337", "\nseed: 1.5", ["seed", "1.5", "integer"]),
        ("\nlr: null", "\nlr: 6e-4x", ["lr", "'6e-4x'", "number"]),
        ("\nlr: null", "\nlr: .nan", ["lr", "nan", "finite"]),
        ("\nlr: null", "\nlr: 0", ["lr", "0", "greater than 0"]),
        ("\nattn_skip: null", "\nattn_skip: 1.5", ["attn_skip", "1.5", "less than or equal to 1"]),
        (
            "\nschedule: null",
            "\nschedule: linear",
            ["schedule", "'linear'", "'cosine' or 'constant'"],
        ),
        ("  bias: true", "  bias: yes", ["base.bias", "'yes'", "boolean"]),
        ("n_embd: 96", "n_embd: 97", ["scales.tiny.n_embd", "97", "multiple of n_head, 4"]),
        (
            "warmup_steps: 200",
            "warmup_steps: 400",
            ["scales.tiny.warmup_steps", "400", "less than"],
        ),
        ("\nsteps: null", "\nsteps: 100", ["warmup_steps", "200", "less than steps"]),
        ("\nlr: null", "\nlr: 1e-5", ["scales.tiny.min_lr", "0.0001", "must not exceed lr, 1e-05"]),
        (
            "  dtype: float32",
            "  dtype: bfloat16",
            ["base.numerics", "portable", "dtype float32", "bfloat16"],
        ),
        ("[1337, 42, 123]", "[]", ["grid.seed", "[]", "at least 1 item"]),
        ("[1337, 42, 123]", "[1, 1]", ["grid.seed", "[1, 1]", "must not hold 1 twice"]),
        ("[1337, 42, 123]", "[1, '1']", ["grid.seed", "'1'", "integer"]),
        ("[residualgpt, nanogpt]", "[resgpt]", ["impls", "'resgpt'", "residualgpt, nanogpt"]),
        ("\nscale: tiny", "\nscale: huge", ["scales", "'huge'", "tiny, tiny_owt, gpt10m"]),
        ("  tiny:  ", "  10M:  ", ["'10M'", "begin with a letter"]),
        ("    n_layer: 6\n", "", ["n_layer", "tiny"]),
        ("val_fraction: 0.1", "val_fraction: 1", ["data.shakespeare.val_fraction", "less than 1"]),
        ("\ndtype: null", "", ["dtype", "must be set"]),
        ("\nseed: 1337", "\nseed: [", ["line"]),
    ],
)
def test_a_mistake_is_one_line_that_names_key_value_and_what_is_allowed(tmp_path, old, new, named):
    with pytest.raises(UserError) as caught:
        load(tmp_path, old, new)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(("params.yaml: ", str(tmp_path)))
    for word in named:
        assert word in message


@pytest.mark.parametrize("text", ["1e-5", "1E-5", "1e-05", "0.00001", "1.0e-5"])
def test_a_float_is_a_float_however_it_is_written(tmp_path, text):
    loaded = load(tmp_path, "adam_eps: 1.0e-8", f"adam_eps: {text}")
    assert loaded.base.adam_eps == 1e-5


def test_layers_override_in_their_order(tmp_path):
    loaded = load(tmp_path, "    threads: 1\n", "    threads: 1\n    impl: {nanogpt: {lr: 0.5}}\n")
    assert loaded.resolve("tiny", "residualgpt", "full").warmup_steps == 200
    nanogpt = loaded.resolve("tiny", "nanogpt", "no_res")
    assert (nanogpt.lr, nanogpt.warmup_steps, nanogpt.schedule) == (0.5, 0, "constant")
    assert (nanogpt.attn_skip, nanogpt.ffn_skip) == (0.0, 0.0)


def test_overrides_act_on_the_trial_only(tmp_path):
    loaded = load(tmp_path, "\nlr: null", "\nlr: 0.25")
    assert loaded.resolve("tiny", "residualgpt", "full", trial=True).lr == 0.25
    assert loaded.resolve("tiny", "residualgpt", "full").lr == 1e-3


def test_the_papers_hyperparameters_are_those_of_table_1():
    run = params.load(ROOT / "params.yaml").resolve("gpt10m", "residualgpt", "full")
    table = {
        "n_layer": 6, "n_embd": 384, "n_head": 6, "block_size": 256, "batch_size": 64,
        "accumulation": 1, "steps": 3000, "dropout": 0.2, "eval_interval": 100, "beta1": 0.9,
        "beta2": 0.95, "weight_decay": 0.1, "grad_clip": 1.0, "lr": 3e-4, "min_lr": 3e-5,
        "warmup_steps": 100, "eval_seed": 99991,
    }  # fmt: skip
    assert run.model_dump(include=set(table)) == table


def test_the_check_stage_says_it_on_stderr_and_exits_1(tmp_path):
    (tmp_path / "params.yaml").write_text(TEXT.replace("n_head: 4", "n_head: 5", 1))
    environment = {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "resablate.stages.check"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: params.yaml: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_the_check_stage_refuses_runs_of_a_removed_seed_before_anything_is_deleted(root):
    (root / "params.yaml").write_text(TEXT, encoding="utf-8")
    left = root / "metrics/runs/main/tiny/residualgpt-full/7.json"
    left.parent.mkdir(parents=True)
    left.write_text("{}")
    with pytest.raises(UserError, match=r"rm metrics/runs/main/tiny/residualgpt-full/7\.json"):
        check.main()
    assert left.exists()
    left.unlink()
    check.main()
    assert (root / "data/params.schema.json").exists()


def test_the_check_stage_refuses_a_block_longer_than_the_prepared_corpus(root):
    text = TEXT.replace("block_size: 64", "block_size: 5000", 1)
    (root / "params.yaml").write_text(text, encoding="utf-8")
    document = root / "metrics/data/shakespeare.json"
    document.parent.mkdir(parents=True)
    document.write_text('{"train_tokens": 9000, "val_tokens": 1000}')
    with pytest.raises(UserError, match=r"tiny\.block_size: 5000 must be less than the 1000"):
        check.main()
