"""Token arrays, and batches of them as a pure function of (seed, position)."""

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from resablate import rng
from resablate.errors import UserError
from resablate.rng import Purpose

DTYPE = np.dtype("<u2")


class Batch(NamedTuple):
    """(B, T) token ids, int64; targets are the tokens one position later."""

    tokens: Tensor
    targets: Tensor


class Tokens:
    """The token files of a scale: train.bin, val.bin (uint16) and vocab.json."""

    def __init__(self, folder: Path, block_size: int) -> None:
        self.folder, self.block_size = folder, block_size
        try:
            self.vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
            size = {s: self._path(s).stat().st_size for s in ("train", "val")}
            told = {s: self.vocab[f"{s}_tokens"] * DTYPE.itemsize for s in size}
        except OSError as error:
            raise UserError(
                f"{error.filename}: {error.strerror}; make it with: dvc repro"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{folder}/vocab.json: damaged ({error!r}); make it again with: dvc repro -f"
            ) from None
        if size != told:  # a vocabulary beside the tokens of another one
            raise UserError(
                f"{folder}: vocab.json tells of {told} bytes of tokens, not {size}; make both"
                " again with: dvc repro -f"
            )
        self.length = {split: n // DTYPE.itemsize for split, n in size.items()}
        for split, length in self.length.items():
            if length <= block_size:
                raise UserError(
                    f"{self._path(split)}: holds {length} tokens; block_size {block_size} needs"
                    f" at least {block_size + 1}"
                )

    def _path(self, split: str) -> Path:
        return self.folder / f"{split}.bin"

    def _memory(self, split: str) -> np.ndarray:
        # Mapped anew each time: pages of a long-lived map add up in the process's memory.
        return np.memmap(self._path(split), DTYPE, mode="r")

    @cached_property
    def sha256(self) -> dict[str, str]:
        """Content hashes of the three files."""
        names = ("train.bin", "val.bin", "vocab.json")
        return {n: hashlib.sha256((self.folder / n).read_bytes()).hexdigest() for n in names}

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return self.vocab["size"]

    def train_batch(self, seed: int, position: int, size: int) -> Batch:
        """Return micro-batch number `position` of a run, drawn with replacement."""
        high = self.length["train"] - self.block_size
        return self._windows(
            "train", rng.integers(seed, Purpose.DATA, size, high, (position, 0, 0))
        )

    def val_batches(self, seed: int, position: int, n: int, size: int) -> list[Batch]:
        """Return n validation batches, drawn with replacement at a position of their own stream."""
        high = self.length["val"] - self.block_size
        starts = rng.integers(seed, Purpose.EVALUATION, n * size, high, (position, 0, 0))
        return [self._windows("val", part) for part in starts.reshape(n, size)]

    def whole_val(self, size: int) -> list[Batch]:
        """Return the validation split once: adjoining windows, the last one shorter."""
        n = (self.length["val"] - 1) // self.block_size
        starts = np.arange(n) * self.block_size
        batches = [self._windows("val", starts[i : i + size]) for i in range(0, n, size)]
        rest = (self.length["val"] - 1) % self.block_size
        if rest:
            batches.append(self._windows("val", np.array([n * self.block_size]), rest))
        return batches

    def _windows(self, split: str, starts: np.ndarray, T: int | None = None) -> Batch:
        T = T or self.block_size
        index = starts[:, None] + np.arange(T + 1)
        window = torch.from_numpy(self._memory(split)[index].astype(np.int64))
        return Batch(window[:, :-1].contiguous(), window[:, 1:].contiguous())
