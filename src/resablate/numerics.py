"""Portable numerics: a CPU run with the same bits on every x86-64 processor that has AVX2.

Three libraries under PyTorch choose their code by the processor, once, when they start:

| library | in a step                                      | chooses by     | portable            |
|---------|------------------------------------------------|----------------|---------------------|
| ATen    | softmax, LayerNorm, cross-entropy, sums, AdamW | ISA            | AVX2                |
| oneDNN  | linear layers                                  | ISA            | long sums in parts  |
|         | GELU                                           | ISA            | ATen's GELU instead |
| MKL     | attention's products, those in float64         | ISA and vendor | SSE2, for all alike |

A oneDNN product adds an element's terms one after the other with AVX2 as with AVX-512. Only where
it cuts a long sum over rows differs, and GELU's polynomial.

What remains depends on no processor: numpy's Philox and normal numbers, and libm, whose code for
AVX2 machines is one. PyTorch's square root of an array does: it is MKL's vector maths, which
rounds by vendor even when pinned (see `diagnostics.optimiser_state`).
"""

import os

from resablate.errors import UserError
from resablate.params import Run

PINS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",  # at most: AVX2 gives the same bits
    "MKL_CBWR": "COMPATIBLE",
}
ROWS = 512  # that a weight gradient sums at a time


def pin(run: Run) -> None:
    """Fix the libraries' paths if the run is portable; call it before torch is first imported."""
    if run.numerics == "portable":
        os.environ.update(PINS)


def is_pinned() -> bool:
    """Tell whether this process is set up for portable runs."""
    return all(os.environ.get(name) == value for name, value in PINS.items())


def check_pinned(run: Run, capability: str) -> None:
    """UserError if the run is portable and its bits would not be.

    capability: the instruction set that ATen took, from torch.backends.cpu.
    """
    if run.numerics == "native":
        return
    if not is_pinned():
        raise UserError(
            "numerics: portable, but this process is not set up for it: start the run by its"
            " stage, or call numerics.pin before torch is imported"
        )
    if capability != "AVX2":
        raise UserError(
            f"numerics: portable, but PyTorch computes with {capability} instead of AVX2: the"
            " processor lacks it, or torch was imported before numerics.pin; set numerics to native"
        )
