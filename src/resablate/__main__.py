"""The researcher's commands: python -m resablate COMMAND --help"""

import argparse
import importlib
import sys
from types import ModuleType

from resablate.commandline import Parser, run_command

COMMANDS = {  # each a module of the package, with `configure` and `main`
    "bench": "measure speed and memory",
    "completion": "print what makes a shell complete these commands",
    "diverge": "name the first difference between two runs",
    "live": "follow the runs that train now, in a table or in TensorBoard",
    "offline": "run cells where no DVC is, and take them into the DAG",
    "plan": "what cells will cost, before anything starts",
    "remote": "set up and check the storage that a lab shares",
    "report": "open a pipeline's page of results",
    "sweep": "run what is stale of a pipeline, several cells at once",
    "trace": "lead a printed number back to its runs, code, parameters and data",
    "verify": "check every printed digit, and the chain from code and data to it",
}
MODULES = {"bench": "bench.__main__"}  # those of another name than the command's


def module_of(name: str) -> ModuleType:
    """Import the module of a command."""
    return importlib.import_module(f"resablate.{MODULES.get(name, name)}")


def main(arguments: list[str]) -> None:
    """Run a command, whose module is imported only now; exit with its status."""
    listed = "\n".join(f"  {name:12}{text}" for name, text in COMMANDS.items())
    outer = Parser(
        prog="python -m resablate",
        description=f"commands:\n{listed}",
        epilog="help and examples of a command: python -m resablate COMMAND --help",
    )
    outer.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    outer.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...")
    if not arguments:
        outer.print_help()
        return
    chosen = outer.parse_args(arguments)
    module = module_of(chosen.command)
    inner = Parser(prog=f"python -m resablate {chosen.command}", description=module.__doc__)
    module.configure(inner)
    sys.exit(module.main(inner.parse_args(chosen.arguments)))


if __name__ == "__main__":
    run_command(main, sys.argv[1:], status=2)
