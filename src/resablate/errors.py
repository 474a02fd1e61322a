"""Errors that a user can cause: one clear line, no traceback."""

import sys
from collections.abc import Callable


class UserError(Exception):
    """What is wrong (which key or file, what it holds), what is allowed, and what to do."""


def run_command(main: Callable[..., None], *args: object, status: int = 1) -> None:
    """Run a command's `main`; a UserError becomes one line on stderr and the exit status."""
    try:
        main(*args)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(status)
