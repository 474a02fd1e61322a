"""Run cells on a machine without DVC and network, and take their outs into the DAG on another.

    python -m resablate offline run --limit 600 --out DIR 'train@gpt10m-residualgpt-*'
    python -m resablate offline take DIR

`run` needs a copy of this folder with the tokens of the cells' scales (data/tokens/<scale>), and
PyTorch, numpy, pydantic, ruamel.yaml, safetensors and tqdm, at the versions of requirements.lock.
It trains the cells one after the other, shortest first. What is cut short by the limit goes on
where it was saved, after the same command in the same folder; what is complete is left alone. It
exits with 0 when all cells are there, 3 when the time was up before.

DIR then holds for each cell `<cell>.json`, which names the hash of all that decided the run (code,
parameters, data, as dvc.lock has them) and of all that it left, and `<cell>.partNNN`, below 16 MiB
each. `take` refuses every cell, and changes nothing, if any part is missing or damaged, or if code,
parameters or data here are others; else it puts the outs and the record of the environment in their
places and has DVC commit them, which needs no training.
"""

import argparse
import importlib
import importlib.util
from pathlib import Path

from resablate.errors import UserError

NEEDED = ("torch", "numpy", "pydantic", "ruamel.yaml", "safetensors", "tqdm")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands."""
    commands = parser.add_subparsers(dest="command", required=True, metavar="run|take")
    run = commands.add_parser("run", help="train cells and pack what they leave")
    run.add_argument("cells", nargs="+", metavar="CELL", help="cells or patterns, as `plan` takes")
    run.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the packs go")
    run.add_argument("--limit", type=float, metavar="S", help="seconds after which to stop")
    run.add_argument(
        "-j", type=int, default=1, metavar="N", help="cells at once on this machine (1)"
    )
    take = commands.add_parser("take", help="put packs into the DAG")
    take.add_argument("folder", type=Path, metavar="DIR", help="what `run` left")
    take.add_argument(
        "--replace", action="store_true", help="also where this folder has other outs of a cell"
    )
    take.add_argument(
        "--other-versions",
        action="store_true",
        help="also runs of library versions that requirements-numerics.lock does not name",
    )


def main(options: argparse.Namespace) -> int:
    """Do what is asked; return the exit status."""
    if missing := [name for name in NEEDED if not _is_there(name)]:
        raise UserError(
            f"missing here: {', '.join(missing)}; on a machine with a network, `pip download` the"
            " versions of requirements.lock for this Python, bring the wheels, and pip install"
            " them with --no-index --find-links"
        )
    module = importlib.import_module(f"resablate.offline.{options.command}")
    return module.main(options)


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a package around it
        return False
