"""Stage `train`: one cell of the grid.

python -m resablate.stages.train SCALE IMPL CONFIG SEED
"""

import sys

from resablate import numerics, params, paths
from resablate.errors import UserError, run_command


def main(arguments: list[str]) -> None:
    """Train the cell that the arguments name."""
    if len(arguments) != 4:
        raise UserError(
            f"train takes SCALE IMPL CONFIG SEED, not {' '.join(arguments) or 'nothing'}"
        )
    scale, impl, config, seed = (*arguments[:3], params.seed_of(arguments[3]))
    run = params.load().resolve(scale, impl, config)
    numerics.pin(run)
    from resablate import data, runs  # noqa: PLC0415 -- they import torch, which reads the pins

    tokens = data.Tokens(paths.tokens(scale), run.block_size)
    arm = f"{impl}-{config}"
    runs.execute(f"{scale}-{arm}-{seed}", run, seed, tokens, paths.run("main", scale, arm, seed))


if __name__ == "__main__":
    run_command(main, sys.argv[1:])
