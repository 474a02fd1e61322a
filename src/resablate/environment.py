"""Where a run computes: device, threads and the switches that make its bits repeatable."""

import ctypes
import os
import signal
import sys

import torch

from resablate.errors import UserError
from resablate.params import Run

PR_SET_PDEATHSIG = 1  # prctl(2)


def configure(run: Run) -> torch.device:
    """Set threads and determinism for this process; return the device to compute on."""
    torch.set_num_threads(run.threads or len(os.sched_getaffinity(0)))
    if run.device == "cpu" or (run.device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("device: cuda: PyTorch sees no GPU here; set device to cpu or auto")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.enable_cudnn_sdp(False)  # its backward is not deterministic
    return torch.device("cuda")


def die_with_parent() -> None:
    """End this process when the one that started it ends: killing dvc must not orphan a run."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
