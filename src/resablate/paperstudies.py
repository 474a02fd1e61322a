"""paper/studies.yaml: the studies' deciding arms at the paper's scale, as studies.py has arms."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resablate import studies
from resablate.errors import UserError
from resablate.params import Params
from resablate.studies import Studies

FILE = Path("paper/studies.yaml")


@contextmanager
def naming(path: Path = FILE) -> Iterator[None]:
    """Have the errors of studies.py, which are about studies/params.yaml, name another file."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error).replace(str(studies.FILE), str(path))) from None


def load(declared: Params, path: Path = FILE) -> Studies:
    """Read paper/studies.yaml and resolve every arm; UserError names the first key that is wrong.

    declared: the root's params.yaml.
    """
    found = studies.load(path)
    with naming(path):
        studies.check(found, declared)
    return found
