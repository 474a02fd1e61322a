"""Stage `trial`: the one run that the top of params.yaml describes, overrides included.

dvc exp run -S seed=7 trial
"""

from resablate import numerics, params, paths
from resablate.errors import run_command


def main() -> None:
    """Train the run of the top-level keys."""
    values = params.load()
    run = values.resolve(values.scale, values.impl, values.config, trial=True)
    numerics.pin(run)
    from resablate import data, runs  # noqa: PLC0415 -- they import torch, which reads the pins

    tokens = data.Tokens(paths.tokens(values.scale), run.block_size)
    name = f"trial {values.scale}-{values.impl}-{values.config}-{values.seed}"
    runs.execute(name, run, values.seed, tokens, paths.trial())


if __name__ == "__main__":
    run_command(main)
