"""Print the shell code of a command `resablate` that completes its commands and options.

`resablate` is short for `python -m resablate`. In the activated environment, for one shell:

    source <(python -m resablate completion)
"""

import argparse

import shtab

from resablate.__main__ import COMMANDS, module_of
from resablate.commandline import Parser

NAME = "resablate"
EXAMPLES = """\
examples:
  source <(python -m resablate completion)           bash, this shell
  python -m resablate completion >> .venv/bin/activate
                                                     bash, whenever .venv is activated
  source <(python -m resablate completion zsh)       zsh, after compinit"""


def everything() -> Parser:
    """Return one parser of all commands."""
    parser = Parser(prog=NAME)
    commands = parser.add_subparsers()
    for name, text in COMMANDS.items():
        module_of(name).configure(commands.add_parser(name, help=text))
    return parser


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("shell", nargs="?", choices=("bash", "zsh"), default="bash")


def main(arguments: argparse.Namespace) -> int:
    """Print the code; return the exit status."""
    print(f'{NAME}() {{ python -m {NAME} "$@"; }}')
    print(shtab.complete(everything(), arguments.shell))
    return 0
