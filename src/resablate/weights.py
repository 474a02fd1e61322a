"""Trained weights back as a model, after proof that they are the ones of dvc.lock.

from resablate.weights import load_model
model = load_model("data/models/main/tiny/residualgpt-full/1337.safetensors")
logits = model(tokens)  # (B, T) int64 -> (B, T, V)
"""

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from safetensors import SafetensorError, safe_open
from safetensors.torch import load

from resablate.errors import UserError
from resablate.model import GPT
from resablate.params import Run
from resablate.snapshot import LOCKS


def load_model(file: str | os.PathLike[str]) -> GPT:
    """Return the model of a weights file of this repository, on the CPU, in evaluation mode.

    Call it from the repository's root. UserError unless the file's MD5 is that of dvc.lock, and the
    vocabulary in data/tokens is the one that the model was trained with.
    """
    path = Path(os.path.relpath(file))
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; get it with: dvc pull {path}") from None
    stage = _stage(path)
    out = next(out for out in stage["outs"] if out["path"] == path.as_posix())
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != out["md5"]:
        raise UserError(
            f"{path}: MD5 {found} is not dvc.lock's {out['md5']}: damaged, or of another run; get"
            f" the right one with: dvc checkout --force {path}"
        )
    document = _document(path)
    vocabulary = _vocabulary(path, stage, document["vocab_sha256"])
    model = GPT(Run(**document["run"]), vocabulary["size"])
    model.load_state_dict(load(content))
    return model.eval()


def _stage(path: Path) -> dict[str, Any]:
    """Return the entry of the stage that made a file."""
    for lock in map(Path, LOCKS):
        if lock.is_file():
            text = lock.read_text(encoding="utf-8")
            stages = YAML(typ="safe", pure=True).load(io.StringIO(text))["stages"]
            for stage in stages.values():
                if path.as_posix() in (out["path"] for out in stage.get("outs", ())):
                    return stage
    raise UserError(f"{path}: no stage of {', '.join(LOCKS)} has made it; nothing vouches for it")


def _document(path: Path) -> dict[str, Any]:
    """Return what `checkpoint.write_weights` put beside the tensors; its run is valid."""
    try:
        with safe_open(path, "pt") as file:
            document = json.loads((file.metadata() or {})["resablate"])
        Run(**document["run"])
    except (SafetensorError, KeyError, TypeError, ValueError, ValidationError) as error:
        detail = str(error).splitlines()[0]
        raise UserError(f"{path}: not weights of this version of resablate: {detail}") from None
    return document


def _vocabulary(path: Path, stage: dict[str, Any], sha256: str) -> dict[str, Any]:
    """Return the vocabulary of the model's tokens, whose hash must be the model's."""
    folder = next(d["path"] for d in stage["deps"] if d["path"].startswith("data/tokens/"))
    vocab = Path(folder, "vocab.json")
    try:
        content = vocab.read_bytes()
    except OSError as error:
        raise UserError(f"{vocab}: {error.strerror}; get it with: dvc pull {folder}") from None
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise UserError(
            f"{path}: trained with the vocabulary {sha256}, but {vocab} is {found}; get the right"
            f" one with: dvc checkout --force {folder}"
        )
    return json.loads(content)
