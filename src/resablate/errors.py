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
    except (MemoryError, RuntimeError) as error:  # PyTorch's is a RuntimeError
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        reason = str(error).strip().partition("\n")[0]
        advice = "lower batch_size, n_embd or block_size, or free memory"
        print(f"error: out of memory: {reason}; {advice}", file=sys.stderr)
        sys.exit(status)
