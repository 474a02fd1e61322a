"""Where a run computes: device, threads, the switches that make its bits repeatable, the record.

The record is written beside the run and is no out of it: it would change dvc.lock from machine to
machine. It names no host and no user.
"""

import hashlib
import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from resablate import numerics, ops, paths
from resablate.errors import UserError
from resablate.files import write_text
from resablate.params import Run


def configure(run: Run) -> torch.device:
    """Set threads and determinism for this process; return the device to compute on."""
    numerics.check_pinned(run, torch.backends.cpu.get_cpu_capability())
    # Rules GELU only: `ops` calls oneDNN's products by name.
    torch.backends.mkldnn.enabled = run.numerics == "native"
    if run.threads:
        torch.set_num_threads(run.threads)
    if run.device == "cpu" or (run.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("device: cuda: PyTorch sees no GPU here; set device to cpu or auto")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts
    torch.use_deterministic_algorithms(run.kernels == "deterministic")
    torch.utils.deterministic.fill_uninitialized_memory = False  # costs time, guards nothing here
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.enable_cudnn_sdp(False)  # its backward is not deterministic
    return torch.device("cuda")


def record(device: torch.device) -> dict[str, Any]:
    """Return what bits and speed may depend on besides code, parameters and data."""
    libraries = [line.strip(" -") for line in torch.__config__.show().splitlines()]
    known = {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "pins": {name: os.environ.get(name) for name in numerics.PINS},
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "libraries": [line for line in libraries if line.startswith(("Intel(R)", "OpenMP"))],
        "linear_kernel": ops.linear_kernel() if device.type == "cpu" else "cublas",
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "device": device.type,
        "ranks": int(os.environ.get("WORLD_SIZE", "1")),  # set by torchrun
    }
    if device.type == "cuda":
        known |= {
            "gpu": torch.cuda.get_device_name(device),
            "cuda": torch.version.cuda,
            "driver": _driver(),
            "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
            "tf32": torch.backends.cuda.matmul.allow_tf32,
        }
    return known


def cpu_name() -> str:
    """Return the processor's own name for itself."""
    if (info := Path("/proc/cpuinfo")).exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _driver() -> str | None:
    """Return the version of NVIDIA's kernel driver."""
    version = Path("/proc/driver/nvidia/version")
    return version.read_text(encoding="utf-8").splitlines()[0] if version.exists() else None


def write_record(run_metrics: Path, device: torch.device, seconds: float, from_step: int) -> None:
    """Write the record once per distinct environment, and the line of this run that names it.

    seconds: wall time of this process, which began at update `from_step`.
    """
    known = record(device)
    key = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]
    write_text(paths.ENVIRONMENTS / f"{key}.json", json.dumps(known, indent=1) + "\n")
    line = {"environment": key, "seconds": round(seconds, 1), "from_step": from_step}
    beside = paths.ENVIRONMENTS / run_metrics.relative_to("metrics")
    write_text(beside, json.dumps(line) + "\n")
