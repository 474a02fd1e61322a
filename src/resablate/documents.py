"""What the corpora of documents share: the split by document, and files written as documents come.

A document is a validation document iff its text's SHA-256, read as a number in [0, 1), is below
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

from resablate import prepare
from resablate.bpe import Encoded
from resablate.files import whole
from resablate.prepare import Counts, Splits

MANIFEST = "manifest.csv"
MANIFEST_COLUMNS = ("document", "name", "split", "tokens", "bytes", "sha256")
REPORT_SECONDS = 10.0  # between lines where there is no terminal


def split_of(sha256: str, val_fraction: float) -> str:
    """Return `train` or `val`, from the SHA-256 of a document's text."""
    # 52 bits are exact in a float, so that the comparison is the same everywhere.
    return "val" if int(sha256[:13], 16) / 16**13 < val_fraction else "train"


def write_splits(documents: Iterable[Encoded], val_fraction: float, folder: Path) -> Splits:
    """Write train.bin, val.bin and manifest.csv as the documents come; return the splits' sizes."""
    counts = {"train": Counts(0, 0, 0, 0), "val": Counts(0, 0, 0, 0)}
    with contextlib.ExitStack() as stack:
        names = ("train.bin", "val.bin", MANIFEST)
        part = {name: stack.enter_context(whole(folder / name)) for name in names}
        files = {s: stack.enter_context(part[f"{s}.bin"].open("wb")) for s in counts}
        manifest = stack.enter_context(part[MANIFEST].open("w", encoding="utf-8", newline=""))
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


def progress(documents: Iterable[Encoded], dataset: str, corpus: str) -> Iterator[Encoded]:
    """Pass the documents on: a bar of bytes on a terminal, now and then a line elsewhere."""
    on_terminal = sys.stderr.isatty()
    size = n = 0
    reported = time.monotonic()
    with tqdm(unit="B", unit_scale=True, desc=dataset, disable=not on_terminal) as bar:
        for n, document in enumerate(documents, start=1):
            yield document
            bar.update(document.bytes)
            size += document.bytes
            if not on_terminal and time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                print(f"{dataset}: {n} documents, {size / 1e6:.1f} MB", file=sys.stderr)
    print(f"{corpus}: {n} documents, {size / 1e6:.1f} MB", file=sys.stderr)
