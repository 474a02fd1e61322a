"""Stages `train` and `train_124m` of paper/dvc.yaml: one cell.

python -m resablate.stages.paper_train SCALE IMPL CONFIG SEED

RESABLATE_RANKS=N shares the micro-batches of one run among N processes, a GPU each; see
resablate/parallel.py.
"""

import sys

from resablate import numerics, params, paths
from resablate.errors import UserError, run_command


def main(arguments: list[str]) -> None:
    """Train the cell that the arguments name."""
    if len(arguments) != 4:
        raise UserError(
            f"paper_train takes SCALE IMPL CONFIG SEED, not {' '.join(arguments) or 'nothing'}"
        )
    scale, impl, config, seed = (*arguments[:3], params.seed_of(arguments[3]))
    run = params.load().resolve(scale, impl, config)
    numerics.pin(run)
    from resablate import data, parallel  # noqa: PLC0415 -- they import torch, which reads the pins

    tokens = data.Tokens(paths.tokens(scale), run.block_size)
    arm = f"{impl}-{config}"
    outs = paths.run("paper", scale, arm, seed)
    parallel.execute(f"{scale}-{arm}-{seed}", run, seed, tokens, outs)


if __name__ == "__main__":
    run_command(main, sys.argv[1:])
