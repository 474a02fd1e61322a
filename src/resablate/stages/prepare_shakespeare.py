"""Stage `prepare_shakespeare`: TinyShakespeare as character tokens, split in one place.

Expect 1,003,854 training and 111,540 validation tokens of 65, and a floor of 3.3473 nats.
"""

import numpy as np

from resablate import corpora, params, paths, prepare
from resablate.errors import run_command
from resablate.files import write_bytes
from resablate.lengths import check_lengths
from resablate.prepare import Corpus, Counts, Splits

DATASET = "shakespeare"


def encode(text: str) -> tuple[np.ndarray, list[str]]:
    """Return uint16 tokens and the characters that they stand for, in the order of Unicode."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    known = np.flatnonzero(np.bincount(points))
    token_of = np.zeros(known[-1] + 1, prepare.TOKEN)
    token_of[known] = np.arange(len(known))
    return token_of[points], [chr(point) for point in known]


def main() -> None:
    """Write each scale's tokens and the data set's document."""
    settings = params.load()
    text = corpora.tinyshakespeare()
    tokens, characters = encode(text)
    data = settings.data.shakespeare
    border = int(len(text) * (1 - data.val_fraction))  # nanoGPT's rule
    texts = (text[:border], text[border:])
    splits = Splits(*(Counts(1, len(t), len(t), len(t.encode())) for t in texts))
    check_lengths(settings, DATASET, splits.tokens)

    corpus = Corpus(
        corpora.TINYSHAKESPEARE,
        corpora.TINYSHAKESPEARE_SHA256,
        "characters",
        len(characters),
        characters,
        None,
    )
    for scale in settings.scales_of(DATASET):
        folder = paths.tokens(scale)
        write_bytes(folder / "train.bin", tokens[:border].tobytes())
        write_bytes(folder / "val.bin", tokens[border:].tobytes())
        prepare.write_vocabulary(folder / "vocab.json", corpus, splits)
    ladder = prepare.measure(folder, corpus.vocab_size, data.ngram_order)
    prepare.write_document(DATASET, corpus, splits, ladder)


if __name__ == "__main__":
    run_command(main)
