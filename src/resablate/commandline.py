"""What the commands share: arguments refused in one line, output that any terminal can show."""

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from resablate import errors
from resablate.errors import UserError


class Parser(argparse.ArgumentParser):
    """A parser whose help is shown as it is written, and whose errors are one line."""

    def __init__(self, **settings: object) -> None:
        style = {"formatter_class": argparse.RawDescriptionHelpFormatter}
        super().__init__(**style | settings)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} --help")


def count(text: str) -> int:
    """Convert an argument that is a whole number of at least 1."""
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number of at least 1")
    return int(text)


def run_command(main: Callable[..., None], *args: object, status: int = 1) -> None:
    """Run a command's `main` as `errors.run_command` does, for people at a terminal.

    What the terminal's encoding lacks (— or × in Latin-1) is printed as ?; a reader of the output
    that has had enough, such as `head`, ends the command quietly, with status 1.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # not a file: a test's or a notebook's
            stream.reconfigure(errors="replace")
    try:
        errors.run_command(main, *args, status=status)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
