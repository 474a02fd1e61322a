"""Whether a data set's splits are long enough for what params.yaml asks of them."""

import itertools
import json
from collections.abc import Mapping

from resablate import paths
from resablate.errors import UserError
from resablate.params import Params


def scales_fed(params: Params, dataset: str) -> list[str]:
    """Return the scales that the data set feeds; UserError if there are none."""
    if scales := params.scales_of(dataset):
        return scales
    raise UserError(
        f"params.yaml: scales: none has dataset {dataset}; set one's, or drop the data set's stage"
    )


def check_lengths(params: Params, dataset: str, tokens: Mapping[str, int]) -> None:
    """Refuse splits too short for a window of a scale, or for the n-gram ladder.

    tokens: of each split, `train` and `val`.
    """
    for scale in scales_fed(params, dataset):
        runs = itertools.product([scale], params.impls, params.configs)
        block_size = max(params.resolve(*run).block_size for run in runs)
        for split, length in tokens.items():
            if length <= block_size:
                raise UserError(
                    f"params.yaml: scales.{scale}.block_size: {block_size} must be less than the"
                    f" {length} tokens of the {split} split; lower it, or change"
                    f" data.{dataset}.val_fraction"
                )
    order = getattr(params.data, dataset).ngram_order
    if order > tokens["train"]:
        raise UserError(
            f"params.yaml: data.{dataset}.ngram_order: {order} must not exceed the"
            f" {tokens['train']} tokens of the train split; lower it"
        )


def check_prepared(params: Params) -> None:
    """Check the data sets that are prepared already, by their documents' token counts.

    The splits are those that val_fraction asks for now; by documents, they come out about so long.
    """
    for dataset in type(params.data).model_fields:
        document = paths.data_document(dataset)
        if document.is_file():
            counts = json.loads(document.read_text(encoding="utf-8"))
            total = counts["train_tokens"] + counts["val_tokens"]
            val = round(total * getattr(params.data, dataset).val_fraction)
            check_lengths(params, dataset, {"train": total - val, "val": val})
