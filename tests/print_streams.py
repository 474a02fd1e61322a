"""Print hashes of what must not depend on the processor: python print_streams.py FOLDER."""

import hashlib
import json
import sys
from pathlib import Path

import torch
from torch import Tensor

from resablate.dropout import Masks
from toys import CPU, toy_run, toy_tokens, toy_trainer

SEED = 1337


def digest(*tensors: Tensor) -> str:
    """Return the hash of the tensors' bytes."""
    parts = [t.detach().contiguous().numpy().tobytes() for t in tensors]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def streams(folder: Path) -> dict[str, str]:
    """Return hashes of data order, evaluation windows, initial weights and dropout masks."""
    model = toy_trainer(folder, SEED, n_embd=192).model
    tokens = toy_tokens(folder, 20_000)
    masks = Masks(toy_run(block_size=100, dropout=0.2), SEED, 5, CPU)
    drawn = [tokens.train_batch(SEED, position, 16) for position in range(20)]
    windows = [batch for position in (0, 50) for batch in tokens.val_batches(9, position, 5, 16)]
    return {
        "instruction set": torch.backends.cpu.get_cpu_capability(),
        "data order": digest(*(part for batch in drawn for part in batch)),
        "evaluation windows": digest(*(part for batch in windows for part in batch)),
        "initial weights": digest(*model.parameters()),
        "hidden mask": digest(masks.hidden()),
        "attention masks": digest(*masks.attention()),
    }


if __name__ == "__main__":
    print(json.dumps(streams(Path(sys.argv[1]))))
