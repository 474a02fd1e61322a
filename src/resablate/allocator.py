"""Memory that a training process keeps between its steps, instead of giving it back each time.

glibc maps every large tensor anew and unmaps it when it is freed, and the system clears each page
at its first touch: a tenth of a step over characters, half of one over GPT-2's vocabulary. The
settings change where a tensor lies, and nothing that is computed.

A process reads them when it starts, so whoever starts a training run passes them on.
"""

from collections.abc import Mapping

VARIABLE = "GLIBC_TUNABLES"
MAPPED = 2**30  # bytes from which on an allocation is mapped for itself: such a step is long anyway
KEPT = 2**34  # bytes of free memory that are kept, at most
KEEPING = (
    f"glibc.malloc.mmap_threshold={MAPPED}:glibc.malloc.trim_threshold={KEPT}"
    ":glibc.malloc.hugetlb=1"  # asks for large pages
)


def keeping(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a training process; what the variable says already stays."""
    return {VARIABLE: KEEPING} | dict(environment)
