"""Weights are read only if dvc.lock vouches for them and the vocabulary is theirs."""

import hashlib
import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML

from resablate import checkpoint
from resablate.errors import UserError
from resablate.weights import load_model
from toys import VOCAB, toy_trainer

PATH = Path("data/models/main/tiny/residualgpt-full/3.safetensors")
TOKENS = Path("data/tokens/tiny")


def lock(content, path=PATH):
    """Write a dvc.lock that vouches for a content."""
    out = {"path": path.as_posix(), "md5": hashlib.md5(content).hexdigest()}
    stage = {"cmd": "x", "deps": [{"path": TOKENS.as_posix(), "md5": "0.dir"}], "outs": [out]}
    with Path("dvc.lock").open("w") as file:
        YAML().dump({"schema": "2.0", "stages": {"train@tiny-residualgpt-full-3": stage}}, file)


@pytest.fixture(params=["residualgpt", "nanogpt"])
def trained(root, request):
    """A trained toy model whose file is locked."""
    trainer = toy_trainer(TOKENS, impl=request.param, steps=4, warmup_steps=0)
    sha256 = trainer.tokens.sha256["vocab.json"]
    checkpoint.write_weights(PATH, trainer.model, sha256)
    lock(PATH.read_bytes())
    return trainer


def test_the_loaded_model_computes_the_same(trained):
    tokens = torch.arange(16).reshape(2, 8) % VOCAB
    for path in (PATH, PATH.absolute()):
        model = load_model(path)
        assert not model.training
        with torch.no_grad():
            assert torch.equal(model(tokens).logits, trained.model.eval()(tokens).logits)


def test_other_bytes_than_the_locks_are_refused(trained):
    content = bytearray(PATH.read_bytes())
    content[-1] ^= 1
    PATH.write_bytes(content)
    with pytest.raises(UserError, match=rf"{PATH}: MD5 \w+ is not dvc.lock's \w+"):
        load_model(PATH)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize("content", [pickle.dumps(Bomb()), b"", b"\xff" * 64], ids=range(3))
def test_a_pickle_under_the_locks_own_hash_is_refused_unread(trained, content):
    PATH.write_bytes(content)
    lock(content)
    with pytest.raises(UserError, match="not weights of this version of resablate"):
        load_model(PATH)
    assert not Path("exploded").exists()


def test_another_vocabulary_is_refused(trained):
    file = TOKENS / "vocab.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"size": VOCAB + 1}))
    with pytest.raises(UserError, match=r"trained with the vocabulary \w+, but data/tokens/tiny"):
        load_model(PATH)


def test_what_is_not_there_or_not_locked_is_named(trained):
    with pytest.raises(UserError, match=r"no.safetensors: No such file .*dvc pull"):
        load_model("no.safetensors")
    stray = PATH.with_name("4.safetensors")
    stray.write_bytes(PATH.read_bytes())
    with pytest.raises(UserError, match="nothing vouches for it"):
        load_model(stray)
    (TOKENS / "vocab.json").unlink()
    with pytest.raises(UserError, match=r"vocab.json: No such file or directory; get it with"):
        load_model(PATH)
