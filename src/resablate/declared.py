"""params.yaml, read once as long as it holds the same: tables are derived hundreds of times."""

from functools import lru_cache

from resablate import params, paths


def load() -> params.Params:
    """Return params.yaml; UserError names the first key that is wrong."""
    return _load(paths.PARAMS.read_bytes() if paths.PARAMS.is_file() else b"")


@lru_cache(maxsize=1)
def _load(content: bytes) -> params.Params:
    return params.load()
