"""A toy run in the current folder, to be shared among ranks: python -m toy_ranks [KEY=NUMBER ...]

Its tokens lie in `tokens`: if ranks wrote them, one would read what another is writing. The state
is saved after every update. While a file `hold` lies in the folder, the run waits behind its save.
"""

import sys
import time
from pathlib import Path

from resablate import checkpoint, parallel, paths, train
from resablate.data import Tokens
from resablate.errors import run_command
from toys import toy_run

ACCUMULATION = 8

write_state = checkpoint.write_state


def write_and_hold(path: Path, state: checkpoint.State) -> None:
    """Write a state, then wait for as long as the folder says so, but not for ever."""
    write_state(path, state)
    until = time.monotonic() + 120
    while Path("hold").exists() and time.monotonic() < until:
        time.sleep(0.01)


def main(changes: list[str]) -> None:
    """Train it, with changes to its parameters."""
    train.SAVE_SECONDS = 0.0
    checkpoint.write_state = write_and_hold
    pairs = (change.split("=") for change in changes)
    values = {key: float(text) if "e" in text else int(text) for key, text in pairs}
    run = toy_run(**{"accumulation": ACCUMULATION, "dropout": 0.2, **values})
    parallel.execute("toy", run, 3, Tokens(Path("tokens"), run.block_size), paths.trial())


if __name__ == "__main__":
    run_command(main, sys.argv[1:])
