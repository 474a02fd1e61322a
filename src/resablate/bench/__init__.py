"""Speed, measured: python -m resablate.bench. No stage of the pipeline imports this."""

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil


def seconds_of(function: Callable[[], Any]) -> float:
    """Return the wall time of a call, seconds."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def peak_memory_mb() -> float:
    """Return this process's peak resident memory, MB.

    From /proc where there is one: ru_maxrss begins with the memory of the process that forked it.
    """
    if (status := Path("/proc/self/status")).exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def workers_memory_mb() -> float:
    """Return the memory, MB, that this process's children hold and do not share with it."""
    children = psutil.Process().children(recursive=True)
    return sum(child.memory_full_info().uss for child in children) / 2**20
