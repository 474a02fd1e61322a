"""How much of a validation split stands in the training split too.

Two measures, on the files that resablate/documents.py writes. Equal documents, by the SHA-256 of
their text. And n-grams of GRAM tokens within a document: the share of the validation split's that
occur anywhere in training, and the validation documents that have some, or more than half.

N-grams are compared by 64-bit hashes: a multilinear function of random words, one for each token
and one for each place. The chance that any n-gram of OpenWebText's is found by accident is 1e-5.
Memory is flat; time is linear in the training split, once for each BLOCK_TOKENS of validation.
"""

import csv
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from resablate.documents import MANIFEST
from resablate.prepare import token_chunks

GRAM = 13  # as Brown et al. 2020, Language Models are Few-Shot Learners, Appendix C
BLOCK_TOKENS = 1 << 23  # of validation, compared with all of training at once
CHUNK_TOKENS = 1 << 17  # hashed at once, in the processor's cache
FILTER_BITS = 26  # a table of 64 MB tells nearly all n-grams of training that match nothing


class _Documents(NamedTuple):
    """The documents of a split, in the order of its file."""

    tokens: np.ndarray  # of each, its end-of-text token included
    sha256: np.ndarray  # the first 64 bits


def measure(folder: Path) -> dict[str, Any]:
    """Return the report of a folder's train.bin, val.bin and manifest.csv."""
    train, val = _documents(folder / MANIFEST)
    grams, common = _overlap(folder, val.tokens)
    n_grams = int(grams.sum())
    return {
        "train_duplicate_documents": len(train.sha256) - len(np.unique(train.sha256)),
        "val_duplicate_documents": len(val.sha256) - len(np.unique(val.sha256)),
        "val_documents_in_train": int(np.isin(val.sha256, train.sha256).sum()),
        "gram_tokens": GRAM,
        "val_grams": n_grams,
        "val_grams_in_train": int(common.sum()),
        "share_of_val_grams_in_train": common.sum() / n_grams if n_grams else None,
        "val_documents": len(grams),
        "val_documents_with_a_gram_in_train": int((common > 0).sum()),
        "val_documents_over_half_in_train": int((2 * common > grams).sum()),
    }


def table(corpus: str, report: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    n, documents = report["gram_tokens"], report["val_documents"]

    def share(key: str, of: int) -> str:
        return f"{report[key]:,} | {report[key] / of:.2%}" if of else f"{report[key]:,} | —"

    some, half = "val_documents_with_a_gram_in_train", "val_documents_over_half_in_train"
    rows = [
        ("equal to a training document", share("val_documents_in_train", documents)),
        (f"with a {n}-gram that training has", share(some, documents)),
        (f"with more than half of their {n}-grams in training", share(half, documents)),
    ]
    lines = [f"Overlap of the splits of {corpus}, {n}-grams of tokens within a document.", ""]
    lines += ["| Validation | n | share |", "|---|---:|---:|", f"| documents | {documents:,} | |"]
    lines += [f"| documents {label} | {value} |" for label, value in rows]
    lines += [f"| {n}-grams | {report['val_grams']:,} | |"]
    lines += [f"| {n}-grams in training | {share('val_grams_in_train', report['val_grams'])} |"]
    return "\n".join(lines) + "\n"


def _documents(manifest: Path) -> tuple[_Documents, _Documents]:
    """Return the documents of the training and of the validation split."""
    columns = {split: (array("q"), array("Q")) for split in ("train", "val")}
    with manifest.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            tokens, hashes = columns[row["split"]]
            tokens.append(int(row["tokens"]))
            hashes.append(int(row["sha256"][:16], 16))
    train, val = (
        _Documents(np.array(tokens), np.array(hashes)) for tokens, hashes in columns.values()
    )
    return train, val


def _overlap(folder: Path, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return of each validation document how many n-grams it has, and how many training has."""
    ends = np.cumsum(lengths) - 1  # where the end-of-text tokens are
    grams = np.maximum(lengths - GRAM, 0)
    common = np.zeros_like(grams)
    for start, hashes in _blocks(folder / "val.bin"):
        starts = np.arange(start, start + len(hashes))
        document = np.searchsorted(ends, starts)
        within = starts + GRAM <= ends[document]
        wanted, index = np.unique(hashes[within], return_inverse=True)
        found = _found(wanted, folder / "train.bin")[index]
        common += np.bincount(document[within][found], minlength=len(common))
    return grams, common


def _blocks(path: Path) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (place of the first n-gram, hashes of BLOCK_TOKENS n-grams) until the file's end."""
    start, parts = 0, []
    for hashes in _hashes(path):
        parts.append(hashes)
        if (n := sum(map(len, parts))) >= BLOCK_TOKENS:
            yield start, np.concatenate(parts)
            start, parts = start + n, []
    if parts:
        yield start, np.concatenate(parts)


def _found(wanted: np.ndarray, train: Path) -> np.ndarray:
    """Tell for each of the sorted hashes whether an n-gram of training has it."""
    found = np.zeros(len(wanted), bool)
    if not len(wanted):
        return found
    shift = np.uint64(64 - FILTER_BITS)
    possible = np.zeros(1 << FILTER_BITS, bool)
    possible[wanted >> shift] = True
    for hashes in _hashes(train):
        likely = hashes[possible[hashes >> shift]]
        place = np.minimum(np.searchsorted(wanted, likely), len(wanted) - 1)
        found[place[wanted[place] == likely]] = True
    return found


def _hashes(path: Path) -> Iterator[np.ndarray]:
    """Yield the hash of the n-gram that begins at each token of a file, in order."""
    words = _random_words((1 << 16) + GRAM)
    of_token, of_place = words[: 1 << 16], words[1 << 16 :] | np.uint64(1)
    for chunk in token_chunks(path, CHUNK_TOKENS, overlap=GRAM - 1):
        drawn = of_token[chunk]
        n = max(len(chunk) - GRAM + 1, 0)
        hashes = np.zeros(n, np.uint64)
        for i, factor in enumerate(of_place):
            hashes += drawn[i : i + n] * factor
        yield hashes


def _random_words(n: int) -> np.ndarray:
    """Return n fixed 64-bit words (SplitMix64; Steele, Lea & Flood 2014)."""
    z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
