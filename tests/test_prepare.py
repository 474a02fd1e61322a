"""Encoding and the prepare stages, on the real texts."""

import csv
import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import tiktoken

from resablate import bpe, corpora, documents, fetch, params, prepare
from resablate.errors import UserError
from resablate.lengths import check_lengths
from resablate.stages import prepare_owt, prepare_shakespeare


@pytest.fixture
def gpt2(workspace) -> tiktoken.Encoding:
    return bpe.encoding()


def contents(folder: str) -> dict[str, bytes]:
    """Return the files below a folder."""
    return {str(path): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def edit_params(old: str, new: str) -> None:
    text = Path("params.yaml").read_text()
    assert old in text
    Path("params.yaml").write_text(text.replace(old, new))


def test_vocabulary(gpt2, downloads):
    assert gpt2.encode_ordinary("Hello world") == [15496, 995]
    assert (gpt2.n_vocab, gpt2.eot_token) == (bpe.VOCAB_SIZE, bpe.END_OF_TEXT)
    ids = json.loads((downloads / "encoder.json").read_text(encoding="utf-8"))
    assert gpt2.decode([ids["Ġking"], ids["Ċ"], ids["Ã©"]]) == " king\né"


def test_a_document_is_ordinary_text_and_one_end(gpt2):
    text = "a <|endoftext|> b"
    document = bpe.encode("d", text)
    assert document.tokens.tolist() == [*gpt2.encode_ordinary(text), bpe.END_OF_TEXT]
    assert document.tokens.tolist().count(bpe.END_OF_TEXT) == 1
    assert document.tokens.dtype == np.uint16
    assert bpe.encode("e", "").tokens.tolist() == [bpe.END_OF_TEXT]
    assert bpe.encode("é", "é").bytes == 2
    assert document.sha256 == fetch.sha256_of(text.encode())


def test_tokens_do_not_depend_on_processes_or_batches(workspace, monkeypatch):
    scenes = list(corpora.stand_in())[:40]
    one = list(bpe.encode_documents(scenes, processes=1))
    assert [document.name for document in one] == [name for name, _ in scenes]
    for processes, size in ((2, 1), (3, 1 << 16)):
        monkeypatch.setattr(bpe, "BATCH_CHARACTERS", size)
        many = list(bpe.encode_documents(scenes, processes=processes))
        assert [d._replace(tokens=d.tokens.tolist()) for d in many] == [
            d._replace(tokens=d.tokens.tolist()) for d in one
        ]


def test_few_documents_are_held_at_a_time(workspace, monkeypatch):
    monkeypatch.setattr(bpe, "BATCH_CHARACTERS", 1)
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield str(taken), "text"

    documents = bpe.encode_documents(endless(), processes=2)
    for i in range(100):
        assert next(documents).name == str(i + 1)
        assert taken <= i + 2 + 2 * bpe.BATCHES_PER_PROCESS
    documents.close()


def test_cuts_in_white_space_change_no_token(gpt2):
    rng = np.random.default_rng(0)
    alphabet = list("  \n\t\u3000\x1c\x85x.'s1é")
    for _ in range(300):
        text = "".join(rng.choice(alphabet, rng.integers(0, 40)))
        parts = bpe.pieces(text, limit=3)
        assert "".join(parts) == text
        tokens = [token for part in parts for token in gpt2.encode_ordinary(part)]
        assert tokens == gpt2.encode_ordinary(text)
    assert bpe.pieces("a    b     ", limit=3) == ["a   ", " b    ", " "]


@pytest.mark.parametrize(
    "text", ["a" * 10**6, " " * 10**6 + "x", "\n" * 2 * 10**6 + " x", "=" * 10**6]
)
def test_a_million_of_one_character_takes_bounded_time(gpt2, text):
    started = time.process_time()
    tokens = bpe.encode("run", text).tokens[:-1]
    assert time.process_time() - started < 10
    assert gpt2.decode(tokens.tolist()) == text


def test_workers_end_when_their_parent_is_killed(workspace):
    code = (
        "import time\nfrom resablate import bpe\n"
        "def documents():\n"
        "    while True:\n"
        "        time.sleep(0.01)\n"
        "        yield 'd', 'x' * 200000\n"
        "if __name__ == '__main__':\n"
        "    for _ in bpe.encode_documents(documents(), 2):\n"
        "        print('running', flush=True)\n"
    )
    Path("script.py").write_text(code)
    source = str(Path(bpe.__file__).parent.parent)
    command = [sys.executable, "script.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={"PYTHONPATH": source}) as process:
        process.stdout.readline()
        workers = psutil.Process(process.pid).children()
        assert len(workers) == 2
        process.send_signal(signal.SIGKILL)
        assert psutil.wait_procs(workers, timeout=60)[1] == []


def test_prepare_shakespeare(workspace):
    prepare_shakespeare.main()
    text = corpora.tinyshakespeare()
    vocabulary = json.loads(Path("data/tokens/tiny/vocab.json").read_text(encoding="utf-8"))
    train, val = (np.fromfile(f"data/tokens/tiny/{split}.bin", "<u2") for split in ("train", "val"))
    assert (len(train), len(val)) == (1_003_854, 111_540)
    assert "".join(vocabulary["characters"][t] for t in [*train[-500:], *val]) == text[1_003_354:]
    assert vocabulary["characters"] == sorted(set(text))
    del vocabulary["characters"]
    assert vocabulary == {
        "kind": "characters",
        "size": 65,
        "eot_token": None,
        "corpus": "TinyShakespeare",
        "train_tokens": 1_003_854,
        "val_tokens": 111_540,
        "val_bytes": 111_540,
    }
    document = json.loads(Path("metrics/data/shakespeare.json").read_text())
    assert document["source_sha256"] == corpora.TINYSHAKESPEARE_SHA256
    assert document["floor"] == document["ngram_ladder"]["1"]
    assert round(document["floor"], 4) == 3.3473
    assert list(document["ngram_ladder"]) == ["1", "2", "3", "4", "5", "6"]
    assert document["uniform"] == math.log(65)


def test_prepare_shakespeare_writes_the_same_again_for_each_scale(workspace):
    prepare_shakespeare.main()
    first = contents("data/tokens") | contents("metrics")
    prepare_shakespeare.main()
    assert contents("data/tokens") | contents("metrics") == first
    assert len(first) == 7
    for name in ("train.bin", "val.bin", "vocab.json"):
        assert first[f"data/tokens/tiny/{name}"] == first[f"data/tokens/gpt10m/{name}"]


def test_a_split_must_be_longer_than_a_window(workspace):
    edit_params("block_size: 256", "block_size: 111540")
    message = r"scales\.gpt10m\.block_size: 111540 must be less than the 111540 tokens of the val"
    with pytest.raises(UserError, match=message):
        prepare_shakespeare.main()
    assert contents("data") == {}


def test_the_training_split_must_hold_the_longest_n_gram(workspace):
    edit_params("ngram_order: 3", "ngram_order: 12")
    edit_params("block_size: 64", "block_size: 2")
    enough, short = (prepare.Counts(1, n, n, n) for n in (12, 11))
    settings = params.load()
    check_lengths(settings, "owt", prepare.Splits(enough, enough).tokens)
    with pytest.raises(UserError, match=r"data\.owt\.ngram_order: 12 must not exceed the 11"):
        check_lengths(settings, "owt", prepare.Splits(short, enough).tokens)


def test_a_data_set_must_feed_a_scale(workspace):
    edit_params("dataset: owt", "dataset: shakespeare")
    with pytest.raises(UserError, match="none has dataset owt"):
        prepare_owt.main()


def test_the_split_of_a_document_by_hand():
    # The digits of the hash after a hexadecimal point, against the fraction.
    assert documents.split_of("8" + "0" * 63, 0.5) == "train"
    assert documents.split_of("7" + "f" * 63, 0.5) == "val"
    assert documents.split_of("1a" + "0" * 62, 0.1) == "train"  # 0.1 is 0.19999999... there
    assert documents.split_of("19" + "0" * 62, 0.1) == "val"


def test_prepare_owt(workspace, gpt2, capfd):
    edit_params("10M\n    dataset: shakespeare", "10M\n    dataset: owt")
    prepare_owt.main()
    assert "stand-in" in capfd.readouterr().err
    folder = Path("data/tokens/tiny_owt")
    for path in folder.iterdir():  # each scale has the same files
        assert (Path("data/tokens/gpt10m") / path.name).read_bytes() == path.read_bytes()
    scenes = list(corpora.stand_in())
    with (folder / "manifest.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [name for name, _ in scenes]
    tokens = {split: np.fromfile(folder / f"{split}.bin", "<u2") for split in ("train", "val")}
    place = {"train": 0, "val": 0}
    for row, (_, text) in zip(rows, scenes, strict=True):
        split, start = row["split"], place[row["split"]]
        place[split] += int(row["tokens"])
        *ordinary, end = tokens[split][start : place[split]].tolist()
        assert end == bpe.END_OF_TEXT
        assert gpt2.decode(ordinary) == text
    assert place == {split: len(array) for split, array in tokens.items()}

    document = json.loads(Path("metrics/data/owt.json").read_text())
    vocabulary = json.loads((folder / "vocab.json").read_text())
    assert document["corpus"] == vocabulary["corpus"]
    assert vocabulary["corpus"].startswith("OpenWebText stand-in: ")
    assert (vocabulary["kind"], vocabulary["eot_token"]) == ("gpt2", 50_256)
    assert document["train_documents"] + document["val_documents"] == 600
    val_bytes = sum(int(row["bytes"]) for row in rows if row["split"] == "val")
    assert vocabulary["val_bytes"] == document["val_bytes"] == val_bytes
    assert list(document["ngram_ladder"]) == ["1", "2", "3"]
    assert document["ngram_ladder"]["3"] < document["ngram_ladder"]["2"] < document["floor"]
