"""What the prepare stages share: the files of a data set, and the checks before they are written.

A scale's folder holds train.bin and val.bin (token ids, little-endian uint16, nothing else) and
vocab.json. The data set's document holds its source, counts and n-gram ladder.
"""

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from resablate import ngrams, paths
from resablate.files import whole, write_text

TOKEN = np.dtype("<u2")


class Counts(NamedTuple):
    """The size of one split."""

    documents: int
    characters: int
    tokens: int
    bytes: int  # of the text in UTF-8: the denominator of bits per byte


class Splits(NamedTuple):
    """The sizes of a data set."""

    train: Counts
    val: Counts

    @property
    def tokens(self) -> dict[str, int]:
        """Tokens of each split."""
        return {split: counts.tokens for split, counts in self._asdict().items()}


class Corpus(NamedTuple):
    """What a text is, and the vocabulary that its tokens are of."""

    name: str
    source_sha256: str
    kind: str  # of vocabulary: `characters` or `gpt2`
    vocab_size: int
    characters: list[str] | None  # by token id
    eot_token: int | None  # ends each document


class Ladder(NamedTuple):
    """What models of the last n - 1 tokens reach on the validation split, nats per token."""

    train_entropy: float  # of the training split's unigram distribution
    rungs: dict[int, float]  # by n; the first is the floor


def write_vocabulary(path: Path, corpus: Corpus, splits: Splits) -> None:
    """Write vocab.json: what the tokens mean, and how many there are."""
    _write_json(
        path,
        {
            "kind": corpus.kind,
            "size": corpus.vocab_size,
            "characters": corpus.characters,
            "eot_token": corpus.eot_token,
            "corpus": corpus.name,
            "train_tokens": splits.train.tokens,
            "val_tokens": splits.val.tokens,
            "val_bytes": splits.val.bytes,
        },
    )


def measure(folder: Path, vocab_size: int, order: int) -> Ladder:
    """Measure the n-gram ladder on a folder's tokens, which it reads into memory."""
    train, val = (read_tokens(folder / f"{split}.bin") for split in Splits._fields)
    return Ladder(ngrams.entropy(train), ngrams.cross_entropies(train, val, vocab_size, order))


def write_document(
    dataset: str, corpus: Corpus, splits: Splits, ladder: Ladder, **more: object
) -> None:
    """Write the data set's document, with `more` at its end."""
    _write_json(
        paths.data_document(dataset),
        {
            "dataset": dataset,
            "corpus": corpus.name,
            "source_sha256": corpus.source_sha256,
            "vocab_size": corpus.vocab_size,
            **{
                f"{split}_{name}": count
                for split, counts in splits._asdict().items()
                for name, count in counts._asdict().items()
            },
            "unit": "nats per token",
            "uniform": math.log(corpus.vocab_size),
            "train_entropy": ladder.train_entropy,
            "floor": ladder.rungs[1],
            "ngram_ladder": {str(n): loss for n, loss in ladder.rungs.items()},
            **more,
        },
    )


def read_tokens(path: Path) -> np.ndarray:
    """Return a split's tokens, on disk until they are read."""
    return np.memmap(path, dtype=TOKEN, mode="r")


def token_chunks(path: Path, size: int, overlap: int = 0) -> Iterator[np.ndarray]:
    """Yield a split's tokens, `size` new ones at a time after the last `overlap` before them.

    Read, not mapped: pages of a map add up in the process's memory.
    """
    kept = np.empty(0, TOKEN)
    with path.open("rb") as file:
        while len(new := np.fromfile(file, TOKEN, size)):
            chunk = np.concatenate([kept, new])
            yield chunk
            kept = chunk[max(len(chunk) - overlap, 0) :]


def copy_folder(source: Path, target: Path) -> None:
    """Give another scale the same files, each whole or not at all."""
    for path in sorted(source.iterdir()):
        with whole(target / path.name) as temporary:
            shutil.copyfile(path, temporary)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
