"""Partial residual ablations of Pre-LN transformers (arXiv 2608.14689), reproducibly."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 -- before a module that such a Python cannot read
    sys.exit(f"error: Python {sys.version.split()[0]} is too old; resablate needs 3.11 or newer")
