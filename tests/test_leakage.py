"""The overlap of the splits against hand-counted values; the streamed ladder against the other."""

import csv
import hashlib
from pathlib import Path

import numpy as np
import pytest

from resablate import bigrams, leakage, ngrams, prepare
from resablate.documents import MANIFEST_COLUMNS

END = 50_256


def write(folder: Path, **splits: list) -> Path:
    """Write the token files of documents, each a sequence of tokens, and their manifest."""
    folder.mkdir(exist_ok=True)
    rows = []
    for split, documents in splits.items():
        tokens = [token for document in documents for token in (*document, END)]
        np.array(tokens, "<u2").tofile(folder / f"{split}.bin")
        for document in documents:
            sha256 = hashlib.sha256(str(list(document)).encode()).hexdigest()
            rows.append((len(rows), "", split, len(document) + 1, 0, sha256))
    with (folder / "manifest.csv").open("w", newline="") as file:
        csv.writer(file).writerows([MANIFEST_COLUMNS, *rows])
    return folder


def test_overlap_counted_by_hand(tmp_path):
    train = [range(100), range(200, 230), range(200, 230), range(5)]
    val = [
        range(50, 80),  # all of its 30 - 12 = 18 grams
        [*range(10, 25), *range(300, 320)],  # 35 tokens, 23 grams: 3 of 15 common tokens
        [*range(200, 226), *range(400, 413)],  # 39 tokens, 27 grams: 14 of 26, more than half
        [*range(200, 225), *range(400, 413)],  # 38 tokens, 26 grams: 13 of 25, exactly half
        range(500, 540),  # none of 28
        range(12),  # too short for one
        range(88, 101),  # 13 tokens, of which training has 12 in a row
        range(5),  # equal to one of training's
        [],
    ]
    report = leakage.measure(write(tmp_path, train=train, val=val))
    assert report == {
        "train_duplicate_documents": 1,
        "val_duplicate_documents": 0,
        "val_documents_in_train": 1,
        "gram_tokens": 13,
        "val_grams": 18 + 23 + 27 + 26 + 28 + 1,
        "val_grams_in_train": 18 + 3 + 14 + 13,
        "share_of_val_grams_in_train": 48 / 123,
        "val_documents": 9,
        "val_documents_with_a_gram_in_train": 4,
        "val_documents_over_half_in_train": 2,
    }


def test_no_gram_reaches_into_the_next_document(tmp_path):
    halves = [range(6), range(6, 12)]
    report = leakage.measure(write(tmp_path, train=halves, val=halves))
    assert report["val_grams"] == 0
    assert report["share_of_val_grams_in_train"] is None
    assert "| 13-grams in training | 0 | — |" in leakage.table("corpus", report)


def test_pieces_and_blocks_change_nothing(tmp_path, monkeypatch):
    draw = np.random.default_rng(1)
    train = [draw.integers(0, 3, n) for n in draw.integers(0, 200, 40)]
    val = [draw.integers(0, 3, n) for n in draw.integers(0, 200, 10)]
    val += [train[0][:90], train[1][20:]]
    folder = write(tmp_path, train=train, val=val)
    known = {tuple(d[i : i + 13].tolist()) for d in train for i in range(len(d) - 12)}
    grams = [[tuple(d[i : i + 13].tolist()) for i in range(len(d) - 12)] for d in val]
    report = leakage.measure(folder)
    assert report["val_grams_in_train"] == sum(gram in known for d in grams for gram in d)
    monkeypatch.setattr(leakage, "CHUNK_TOKENS", 17)
    monkeypatch.setattr(leakage, "BLOCK_TOKENS", 40)
    assert leakage.measure(folder) == report


def test_the_table(tmp_path):
    report = leakage.measure(write(tmp_path, train=[range(30)], val=[range(20), range(50, 70)]))
    assert leakage.table("A corpus", report).splitlines()[2:] == [
        "| Validation | n | share |",
        "|---|---:|---:|",
        "| documents | 2 | |",
        "| documents equal to a training document | 0 | 0.00% |",
        "| documents with a 13-gram that training has | 1 | 50.00% |",
        "| documents with more than half of their 13-grams in training | 1 | 50.00% |",
        "| 13-grams | 16 | |",
        "| 13-grams in training | 8 | 50.00% |",
    ]


@pytest.mark.parametrize(("known", "pass_tokens"), [(50, 1 << 25), (50, 300), (3000, 1)])
def test_the_streamed_ladder_is_the_other_one(tmp_path, monkeypatch, known, pass_tokens):
    monkeypatch.setattr(bigrams, "PASS_TOKENS", pass_tokens)
    monkeypatch.setattr(bigrams, "CHUNK_TOKENS", 100)
    draw = np.random.default_rng(known)
    ids = draw.choice(3000, known, replace=False)
    train = ids[(draw.pareto(1, 5000) * 3).astype(int) % known].astype("<u2")
    val = np.concatenate([train[100:900], draw.integers(0, 3000, 100)]).astype("<u2")
    train.tofile(tmp_path / "train.bin")
    val.tofile(tmp_path / "val.bin")
    streamed = bigrams.measure(tmp_path, 3000, 2)
    whole = prepare.measure(tmp_path, 3000, 2)
    assert streamed.train_entropy == ngrams.entropy(train) == whole.train_entropy
    assert streamed.rungs == pytest.approx(whole.rungs, rel=1e-12)
    assert bigrams.measure(tmp_path, 3000, 1).rungs == {1: streamed.rungs[1]}
