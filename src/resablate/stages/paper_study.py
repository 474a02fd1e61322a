"""Stages `*_10m` of paper/dvc.yaml: one seed of one arm of a study.

python -m resablate.stages.paper_study STUDY LEVEL... SEED
"""

import sys

from resablate import numerics, paperstudies, params, paths
from resablate.errors import UserError, run_command


def main(arguments: list[str]) -> None:
    """Train the run that the arguments name."""
    if len(arguments) < 3:
        raise UserError(
            f"paper_study takes STUDY LEVEL... SEED, not {' '.join(arguments) or 'nothing'}"
        )
    name, levels, seed = arguments[0], arguments[1:-1], params.seed_of(arguments[-1])
    root = params.load()
    declared = paperstudies.load(root)
    with paperstudies.naming():
        arm = declared.arm(name, levels)
    run = declared.resolve(root, name, arm)
    numerics.pin(run)
    from resablate import data, runs  # noqa: PLC0415 -- they import torch, which reads the pins

    scale = declared.study(name).scale
    tokens = data.Tokens(paths.tokens(scale), run.block_size)
    outs = paths.run(name, scale, arm.name, seed)
    runs.execute(f"{name} {arm.name}-{seed}", run, seed, tokens, outs)


if __name__ == "__main__":
    run_command(main, sys.argv[1:])
