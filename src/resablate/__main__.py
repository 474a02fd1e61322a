"""The researcher's commands: python -m resablate COMMAND --help"""

import argparse
import importlib
import os
import sys

from resablate.errors import run_command

COMMANDS = {  # each a module of the package, with `configure` and `main`
    "diverge": "name the first difference between two runs",
    "live": "follow the runs that train now, in a table or in TensorBoard",
    "offline": "run cells where no DVC is, and take them into the DAG",
    "plan": "what cells will cost, before anything starts",
    "remote": "set up and check the storage that a lab shares",
    "report": "open a pipeline's page of results",
    "trace": "lead a printed number back to its runs, code, parameters and data",
    "verify": "check every printed digit, and the chain from code and data to it",
}


def main(arguments: list[str]) -> None:
    """Run a command, whose module is imported only now; exit with its status."""
    listed = "\n".join(f"  {name:10}{text}" for name, text in COMMANDS.items())
    style = argparse.RawDescriptionHelpFormatter
    outer = argparse.ArgumentParser(
        prog="python -m resablate", description=f"commands:\n{listed}", formatter_class=style
    )
    outer.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    outer.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")
    chosen = outer.parse_args(arguments)
    module = importlib.import_module(f"resablate.{chosen.command}")
    inner = argparse.ArgumentParser(
        prog=f"python -m resablate {chosen.command}",
        description=module.__doc__,
        formatter_class=style,
    )
    module.configure(inner)
    try:
        status = module.main(inner.parse_args(chosen.arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)


if __name__ == "__main__":
    run_command(main, sys.argv[1:], status=2)
