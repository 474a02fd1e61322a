"""Memory that a training process keeps between its steps, instead of giving it back each time.

glibc maps every large tensor anew and unmaps it when it is freed, and the system clears each page
at its first touch: a tenth of a step over characters, half of one over GPT-2's vocabulary. With
these settings it keeps what is freed, and what it maps still comes in large pages. They change
where a tensor lies, and nothing that is computed.

A process reads them when it starts, so whoever starts a training run passes them on.
"""

from collections.abc import Mapping

VARIABLE = "GLIBC_TUNABLES"
# Bytes from which on an allocation is still mapped for itself. Were a batch's logits kept (206 MB
# over GPT-2's vocabulary), each loss of an evaluation would lie in the hole of its batch, the next
# batch would need a new one, and a process would grow by gigabytes.
MAPPED = 2**26
KEPT = 2**34  # bytes of free memory that are kept, at most
KEEPING = (
    f"glibc.malloc.mmap_threshold={MAPPED}:glibc.malloc.trim_threshold={KEPT}"
    ":glibc.malloc.hugetlb=1"
)


def keeping(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a training process; what the variable says already stays."""
    return {VARIABLE: KEEPING} | dict(environment)
