"""OpenWebText's stage on a synthetic corpus in parquet: throughput and memory."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from resablate import bigrams, bpe, documents, leakage, openwebtext
from resablate.bench import peak_memory_mb, seconds_of, workers_memory_mb
from resablate.bench.pipeline import synthetic

SIZES = (10_000_000, 50_000_000)
ROW_GROUP = 1000  # documents, as the hub's files have
ROUNDS = 3


def measure() -> dict[str, Any]:
    """Return throughput at the last size, best of ROUNDS, and each size's peak memory, MB."""
    with tempfile.TemporaryDirectory() as folder:
        rounds = {size: _rounds(Path(folder) / f"{size}.parquet", size) for size in SIZES}
    size = SIZES[-1]
    tokens_s, report_s = (min(of[name] for of in rounds[size]) for name in ("tokens_s", "report_s"))
    return {
        "mb_per_s": round(size / 1e6 / tokens_s, 1),
        "report_s_per_100_mb": round(report_s * 1e8 / size, 1),
        "peak_memory_mb": {
            f"{size // 10**6} MB": max(of["peak_memory_mb"] for of in of_size)
            for size, of_size in rounds.items()
        },
    }


def _rounds(path: Path, size: int) -> list[dict[str, float]]:
    """Return what `main` prints in each of ROUNDS fresh processes."""
    command = [sys.executable, "-m", "resablate.bench.openwebtext", str(path)]
    command.append(str(write(path, size)))
    return [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(ROUNDS)
    ]


def write(path: Path, size: int) -> int:
    """Write a synthetic corpus of `size` bytes; return its number of documents."""
    import pyarrow.parquet  # noqa: PLC0415

    n, stream = 0, synthetic(size)
    schema = pyarrow.schema([("text", pyarrow.string())])
    with pyarrow.parquet.ParquetWriter(path, schema) as file:
        while texts := [text for _, text in islice(stream, ROW_GROUP)]:
            file.write_table(pyarrow.table({"text": texts}, schema=schema))
            n += len(texts)
    return n


def main(path: Path, n_documents: int) -> None:
    """Do what the stage does, in a temporary folder; print how long it takes, and memory, MB."""
    peak = 0.0

    def watched(stream: Iterator[bpe.Encoded]) -> Iterator[bpe.Encoded]:
        nonlocal peak
        for i, document in enumerate(stream):
            if i % 200 == 0:
                peak = max(peak, workers_memory_mb())
            yield document

    texts = openwebtext.documents([openwebtext.File(path, "", n_documents)], n_documents)
    encoded = watched(bpe.encode_documents(texts))
    with tempfile.TemporaryDirectory(dir=path.parent) as name:
        folder = Path(name)
        tokens_s = seconds_of(lambda: documents.write_splits(encoded, 0.01, folder))
        report_s = seconds_of(lambda: leakage.measure(folder))
        report_s += seconds_of(lambda: bigrams.measure(folder, bpe.VOCAB_SIZE, 2))
    memory = round(peak + peak_memory_mb(), 1)
    print(json.dumps({"tokens_s": tokens_s, "report_s": report_s, "peak_memory_mb": memory}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
