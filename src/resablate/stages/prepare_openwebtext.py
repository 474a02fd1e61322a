"""Stage `prepare_openwebtext`: the first documents of OpenWebText as GPT-2 tokens, for gpt124m.

Split by document as the stand-in is (resablate/documents.py), with a report of what the splits
have in common (resablate/leakage.py). Memory is flat, whatever the corpus's size.
"""

from resablate import bigrams, bpe, documents, leakage, openwebtext, paths, prepare
from resablate.errors import UserError, run_command
from resablate.files import write_text
from resablate.openwebtext import KEY, PARAMS
from resablate.prepare import Corpus, Splits

DATASET = "openwebtext"
SCALE = "gpt124m"


def check_splits(splits: Splits) -> None:
    """Refuse a split without documents."""
    for split, counts in splits._asdict().items():
        if not counts.documents:
            raise UserError(
                f"{PARAMS}: {KEY}.val_fraction: leaves no document for {split}, of"
                f" {splits.train.documents + splits.val.documents}"
            )


def main() -> None:
    """Write the scale's tokens, the data set's document and the table of the splits' overlap."""
    settings = openwebtext.load()
    used = openwebtext.files(settings)
    name = openwebtext.corpus_name(settings, used)
    folder = paths.tokens(SCALE)

    texts = openwebtext.documents(used, settings.n_documents)
    shown = documents.progress(bpe.encode_documents(texts), DATASET, name)
    splits = documents.write_splits(shown, settings.val_fraction, folder)
    check_splits(splits)

    source = "+".join(file.sha256 for file in used)
    corpus = Corpus(name, source, "gpt2", bpe.VOCAB_SIZE, None, bpe.END_OF_TEXT)
    prepare.write_vocabulary(folder / "vocab.json", corpus, splits)
    report = leakage.measure(folder)
    ladder = bigrams.measure(folder, corpus.vocab_size, settings.ngram_order)
    prepare.write_document(DATASET, corpus, splits, ladder, leakage=report)
    write_text(paths.data_document(DATASET).with_suffix(".md"), leakage.table(name, report))


if __name__ == "__main__":
    run_command(main)
