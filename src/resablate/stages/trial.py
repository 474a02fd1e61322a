"""Stage `trial`: the one run that the top of params.yaml describes, overrides included.

dvc exp run -S seed=7 trial
"""

from resablate import params, paths
from resablate.data import Tokens
from resablate.errors import run_command
from resablate.runs import execute


def main() -> None:
    """Train the run of the top-level keys."""
    values = params.load()
    run = values.resolve(values.scale, values.impl, values.config, trial=True)
    tokens = Tokens(paths.tokens(values.scale), run.block_size)
    name = f"trial {values.scale}-{values.impl}-{values.config}-{values.seed}"
    execute(name, run, values.seed, tokens, paths.trial())


if __name__ == "__main__":
    run_command(main)
