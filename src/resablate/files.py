"""Files written whole or not at all."""

import errno
import glob
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from resablate.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success fsync it and rename it onto `path`.

    After an error, or a kill at any moment, `path` holds what it held before. UserError when the
    disk is full, or the folder may not be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno in CLOSED:
            raise UserError(
                f"{path}: {error.strerror}; make its folder writable for you, then run the same"
                " command again: it goes on from what was saved"
            ) from None
        if error.errno not in FULL:
            raise
        free = shutil.disk_usage(path.parent).free / 1e6
        raise UserError(
            f"{path}: {error.strerror}, {free:,.1f} MB free there; make room, then run the same"
            " command again: it goes on from what was saved"
        ) from None
    finally:
        with suppress(OSError):  # of a folder that cannot be written to, or is not even there
            temporary.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes have left of attempts to write `path`."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        pid = part.name.split(".")[-2]
        if pid.isdecimal() and not _is_alive(int(pid)):
            part.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with whole(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write a text file, UTF-8 with \\n line ends, whole or not at all."""
    write_bytes(path, content.encode("utf-8"))
