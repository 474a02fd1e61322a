"""Portable numerics: a CPU run with the same bits on every x86-64 processor that has AVX2.

Three libraries under PyTorch choose their code by the processor, once, when they start. `pin` has
each take one path through its own variable:

| library | what it does in a step                         | left alone, it chooses by           |
|---------|------------------------------------------------|-------------------------------------|
| ATen    | softmax, LayerNorm, cross-entropy, sums, AdamW | instruction set                     |
| oneDNN  | linear layers, GELU                            | instruction set                     |
| MKL     | attention's products, those in float64         | instruction set, vendor, cache size |

What remains depends on no processor: numpy's Philox and normal numbers, and libm, whose code for
AVX2 machines is one. PyTorch's square root of an array does: it is MKL's vector maths, which
rounds by vendor even when pinned (see `diagnostics.optimiser_state`).
"""

import os

from resablate.errors import UserError
from resablate.params import Run

PINS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    # The one branch that MKL takes on all vendors' processors. It is written in SSE2, and its
    # results depend on no cache size.
    "MKL_CBWR": "COMPATIBLE",
}


def pin(run: Run) -> None:
    """Fix the libraries' paths if the run is portable; call it before torch is first imported."""
    if run.numerics == "portable":
        os.environ.update(PINS)


def check_pinned(run: Run, capability: str) -> None:
    """UserError if the run is portable and its bits would not be.

    capability: the instruction set that ATen took, from torch.backends.cpu.
    """
    if run.numerics == "native":
        return
    if loose := [name for name, value in PINS.items() if os.environ.get(name) != value]:
        raise UserError(
            f"numerics: portable, but {loose[0]} is not {PINS[loose[0]]}; start the run by its"
            " stage, or call numerics.pin before torch is imported"
        )
    if capability != "AVX2":
        raise UserError(
            f"numerics: portable, but PyTorch computes with {capability} instead of AVX2: the"
            " processor lacks it, or torch was imported before numerics.pin; set numerics to native"
        )
