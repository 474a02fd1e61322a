"""A toy run in the current folder, to be shared among ranks: python -m toy_ranks [KEY=NUMBER ...]

The state is saved after every update.
"""

import sys
from pathlib import Path

from resablate import parallel, paths, train
from resablate.errors import run_command
from toys import toy_run, toy_tokens

ACCUMULATION = 8


def main(changes: list[str]) -> None:
    """Train it, with changes to its parameters."""
    train.SAVE_SECONDS = 0.0
    pairs = (change.split("=") for change in changes)
    values = {key: float(text) if "e" in text else int(text) for key, text in pairs}
    run = toy_run(**{"accumulation": ACCUMULATION, "dropout": 0.2, **values})
    parallel.execute("toy", run, 3, toy_tokens(Path("tokens")), paths.trial())


if __name__ == "__main__":
    run_command(main, sys.argv[1:])
