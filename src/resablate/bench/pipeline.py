"""What surrounds the steps: tokenising, DVC's own cost, cells side by side."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from resablate import bpe, corpora, pipeline
from resablate.bench import peak_memory_mb, seconds_of, workers_memory_mb
from resablate.errors import UserError
from resablate.rng import Purpose, integers
from resablate.stages.prepare_shakespeare import encode

CORPUS_BYTES = 50_000_000
LINES = 120  # of a document
ROUNDS = 5
STAGES = 10
SHORTER = {  # of params.yaml: four cells, of few steps
    "impl: [residualgpt, nanogpt]": "impl: [residualgpt]",
    "seed: [1337, 42, 123]": "seed: [1]",
    "steps: 400": "steps: 201",
}
TOY_STAGE = """\
stages:
  toy:
    matrix: {i: [%s]}
    cmd: echo ${item.i} > out${item.i}
    outs:
      - out${item.i}
"""


def synthetic(size: int) -> Iterator[tuple[str, str]]:
    """Yield (name, text) documents of some 1,000 words, `size` bytes in all.

    Lines of the stand-in in a random order: real words, but no text that a cache has seen.
    """
    lines = [line for _, text in corpora.stand_in() for line in text.splitlines() if line]
    total = document = 0
    while total < size:
        draws = integers(1, Purpose.DATA, LINES, len(lines), (document, 0, 0))
        text = "\n".join(lines[i] for i in draws)
        total += len(text)
        document += 1
        yield f"synthetic {document}", text


def prepare() -> dict[str, Any]:
    """Return the throughput of both tokenisers on a synthetic corpus, and what memory they take."""
    documents = list(synthetic(CORPUS_BYTES))
    text = "\n\n".join(text for _, text in documents)
    gpt2 = bpe.encoding()
    n_tokens = sum(len(document.tokens) for document in bpe.encode_documents(documents))
    times: dict[str, list[float]] = {"one process of tiktoken": [], "ours": [], "characters": []}
    for _ in range(ROUNDS):
        times["one process of tiktoken"].append(
            seconds_of(lambda: [gpt2.encode_ordinary(text) for _, text in documents])
        )
        times["ours"].append(seconds_of(lambda: sum(1 for _ in bpe.encode_documents(documents))))
        times["characters"].append(seconds_of(lambda: encode(text)))
    result = {
        name: {
            "mb_per_s": round(len(text) / 1e6 / min(seconds), 1),
            "tokens_per_s": round((len(text) if name == "characters" else n_tokens) / min(seconds)),
        }
        for name, seconds in times.items()
    }
    ratio = min(times["one process of tiktoken"]) / min(times["ours"])
    return result | {"ours_over_one_process": round(ratio, 2), "peak_memory_mb": streaming_memory()}


def streaming_memory() -> dict[str, float]:
    """Return the peak memory, MB, of encoding streams of 10 and of 50 MB, in fresh processes."""
    command = [sys.executable, "-m", "resablate.bench.pipeline"]
    return {
        f"{size // 10**6} MB": float(
            subprocess.run([*command, str(size)], check=True, capture_output=True, text=True).stdout
        )
        for size in (CORPUS_BYTES // 5, CORPUS_BYTES)
    }


def dag() -> dict[str, float]:
    """Return what DVC adds: seconds of a no-op repro here, and per executed stage."""
    dvc = [sys.executable, "-m", "dvc"]
    if pipeline.plan(Path("dvc.yaml")).stale:
        raise UserError("dvc.yaml: some stages are stale; run make repro before make bench")
    noop = min(seconds_of(lambda: _quiet([*dvc, "repro", "dvc.yaml"], ".")) for _ in range(ROUNDS))
    with tempfile.TemporaryDirectory() as folder:
        _quiet([*dvc, "init", "--no-scm"], folder)
        (Path(folder) / "dvc.yaml").write_text(TOY_STAGE % ", ".join(map(str, range(STAGES))))
        first = seconds_of(lambda: _quiet([*dvc, "repro"], folder))
        again = seconds_of(lambda: _quiet([*dvc, "repro"], folder))
    return {"noop_repro_s": round(noop, 2), "per_stage_s": round((first - again) / STAGES, 3)}


def sweep() -> dict[str, float]:
    """Return how long four short cells take one after the other and two at once."""
    seconds = {}
    for jobs in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy"
            _short_copy(copy)
            _quiet([sys.executable, "-m", "resablate.sweep", "prepare_shakespeare"], copy)
            begin = time.perf_counter()
            _quiet([sys.executable, "-m", "resablate.sweep", "-j", str(jobs), "train"], copy)
            seconds[f"j{jobs}_s"] = round(time.perf_counter() - begin, 2)
    return seconds | {"speedup": round(seconds["j1_s"] / seconds["j2_s"], 2)}


def _short_copy(copy: Path) -> None:
    """Copy the tracked files, with the SHORTER grid."""
    tracked = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True)
    for name in filter(None, tracked.stdout.split("\0")):
        if name != "dvc.lock" and Path(name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, copy / name)
    _quiet([sys.executable, "-m", "dvc", "init", "--no-scm", "--force"], copy)
    shutil.copytree(".downloads", copy / ".downloads")
    params = copy / "params.yaml"
    text = params.read_text(encoding="utf-8")
    for old, new in SHORTER.items():
        if old not in text:
            raise UserError(
                f"params.yaml: bench shortens {old!r}, which is not there; mend SHORTER"
            )
        text = text.replace(old, new)
    params.write_text(text, encoding="utf-8")


def _quiet(command: list[str], folder: str | Path) -> None:
    """Run a command in a folder; its output is shown only if it fails."""
    environment = os.environ | {"PYTHONPATH": "src"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def main(size: int) -> None:
    """Encode a stream of `size` bytes; print the peak memory, MB, of all processes together.

    Of the workers, only what they do not share with this process.
    """
    peak = 0.0
    for i, _ in enumerate(bpe.encode_documents(synthetic(size))):
        if i % 200 == 0:
            peak = max(peak, workers_memory_mb())
    print(peak + peak_memory_mb())


if __name__ == "__main__":
    main(int(sys.argv[1]))
