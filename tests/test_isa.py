"""Bits across instruction sets: what never depends on the processor, and portable training."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from resablate import numerics
from resablate.errors import UserError
from toys import toy_run

HERE = Path(__file__).parent
IS_X86 = platform.machine() in ("x86_64", "AMD64")
NUMPY_PATHS = " ".join(np.show_config(mode="dicts")["SIMD Extensions"].get("found", []))
PLAIN = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
SETTINGS = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "baseline": PLAIN | {"NPY_DISABLE_CPU_FEATURES": NUMPY_PATHS},
}
needs_avx2 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="needs AVX2"
)


def printed(script, *arguments, under=(), threads=1, **variables):
    """Return the JSON that a script of this folder prints, run by a process of its own."""
    chosen = ("ATEN_CPU_CAPABILITY", "NPY_DISABLE_CPU_FEATURES", *numerics.PINS)
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    environment |= {
        "PYTHONPATH": os.pathsep.join((str(HERE.parent / "src"), str(HERE))),
        "OMP_NUM_THREADS": str(threads),
    }
    command = (*under, sys.executable, str(HERE / script), *map(str, arguments))
    done = subprocess.run(
        command, env=environment | variables, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def differing(a, b):
    """Return the names under which two documents do not hold the same."""
    assert a.keys() == b.keys()
    return [name for name in a if a[name] != b[name]]


# -- what never depends on the processor -----------------------------------------------------------


@pytest.mark.skipif(not IS_X86, reason="the settings are those of x86-64")
def test_streams_have_the_same_bits_under_every_instruction_set(tmp_path):
    best = printed("print_streams.py", tmp_path)
    seen = {best.pop("instruction set")}
    for setting in SETTINGS.values():
        other = printed("print_streams.py", tmp_path, **setting)
        seen.add(other.pop("instruction set"))
        assert differing(best, other) == []
    assert len(seen) >= 2  # so that the settings did something


# -- portable numerics -----------------------------------------------------------------------------


@needs_avx2
def test_portable_training_heeds_no_setting_and_no_thread_count(tmp_path):
    arguments = ("print_training.py", "portable", tmp_path)
    portable = printed(*arguments)
    assert differing(portable, printed(*arguments, threads=2, **SETTINGS["baseline"])) == []
    assert differing(portable, printed(*arguments, AT_MOST="AVX2")) == []
    # And it differs from what this processor does by itself: the comparison can see it.
    native = printed("print_training.py", "native", tmp_path)
    assert "nanogpt 0 gradient of blocks.0.attn.qkv.weight" in differing(portable, native)


@pytest.fixture(scope="module")
def emulator():
    """The program that runs x86-64 processes on a processor model of choice."""
    found = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if not (found and IS_X86):
        pytest.skip("needs an x86-64 Linux with qemu-x86_64 (Debian: apt install qemu-user)")
    return found


@pytest.mark.slow  # about a minute each
@needs_avx2
@pytest.mark.parametrize("model", ["Haswell", "EPYC-Rome"])
def test_portable_training_is_the_same_on_emulated_processors(tmp_path, emulator, model):
    arguments = ("print_training.py", "portable", tmp_path)
    emulated = printed(*arguments, under=(emulator, "-cpu", model))
    assert differing(printed(*arguments), emulated) == []


def test_a_portable_run_is_refused_where_its_bits_would_be_others(monkeypatch):
    portable = toy_run(numerics="portable")
    for name in numerics.PINS:
        monkeypatch.delenv(name, raising=False)
    numerics.check_pinned(toy_run(), "AVX512")
    with pytest.raises(UserError, match="not set up for it"):
        numerics.check_pinned(portable, "AVX2")
    for name, value in numerics.PINS.items():
        monkeypatch.setenv(name, value)
    numerics.check_pinned(portable, "AVX2")
    with pytest.raises(UserError, match="AVX512 instead of AVX2"):
        numerics.check_pinned(portable, "AVX512")
