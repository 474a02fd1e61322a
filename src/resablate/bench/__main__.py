"""Measure everything; write metrics/bench.json and the table in README.md.

Some 15 minutes, on an otherwise idle machine. Ratios are of things timed in turn in the same
process; absolute numbers are of the machine named.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from resablate import commandline, labels
from resablate.errors import UserError
from resablate.files import write_text
from resablate.results import read_json

RESULT = Path("metrics/bench.json")
README = Path("README.md")
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def table(result: dict[str, Any]) -> str:
    """Return the README's table."""
    m = result["machine"]
    lines = [
        f"{m['cores']} cores of {m['cpu']}, {m['instruction_set']}, torch {m['torch']};"
        " medians of interleaved steps.",
        "",
        "| Step | | tokens/s | against plain float32 | of GEMM peak | peak memory |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for of in result["steps"]:
        for variant, v in of.items():
            if not isinstance(v, dict) or "step_ms" not in v:
                continue  # not of a variant but of the shape
            lines.append(
                f"| {of['scale']}, batch {of['batch_size']}, {of['threads']} threads | {variant} |"
                f" {v['tokens_per_s']:,} | {v['speedup_over_plain_float32']:.2f}× |"
                f" {v['share_of_gemm_peak']:.0%} | {v['peak_memory_mb']:,.0f} MB |"
            )
    prepare, dag, sweep = result["prepare"], result["dag"], result["sweep"]
    owt, kept = result["openwebtext"], result["kept_memory"]
    lines += [
        "",
        f"Portable numerics, the default at `tiny`: {result['portable_cost']:.2f}× the time of a"
        " step with native ones, which the table has.",
        "",
        "Memory kept from step to step (src/resablate/allocator.py), which the table leaves out:"
        f" {kept['tiny']:.2f}× the speed at `tiny`, {kept['tiny_owt']:.2f}× with GPT-2's"
        " vocabulary.",
        "",
        f"Byte-pair tokens: {prepare['ours']['mb_per_s']:.1f} MB/s,"
        f" {prepare['ours_over_one_process']:.2f}× one process of tiktoken, all processes together"
        f" {memory(prepare)}. Characters: {prepare['characters']['mb_per_s']:.0f} MB/s."
        f" A no-op `dvc repro`: {dag['noop_repro_s']:.1f} s; DVC adds {dag['per_stage_s']:.2f} s"
        f" a stage. Two cells at once: {sweep['speedup']:.2f}× as fast as one by one.",
        "",
        f"OpenWebText, from parquet to token files: {owt['mb_per_s']:.1f} MB/s, and"
        f" {owt['report_s_per_100_mb']:.1f} s per 100 MB for the overlap of the splits and the"
        f" ladder; all processes together {memory(owt)}.",
        "",
        *large(result["gpt124m"]),
    ]
    return "\n".join(lines)


def large(of: dict[str, Any]) -> list[str]:
    """Return the lines about the updates of gpt124m."""
    lines = [
        "A few updates of gpt124m, of two micro-batches of four sequences, on the stand-in corpus:"
        " proof that code and memory hold, no result.",
        "",
        "| Configuration | loss before each update | s an update | tokens/s | peak memory |"
        " computed |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for config, v in of.items():
        lines.append(
            f"| {labels.config(config)} | {', '.join(f'{loss:.3f}' for loss in v['losses'])} |"
            f" {v['update_s']:.1f} | {v['tokens_per_s']:,} | {v['peak_memory_mb']:,.0f} MB |"
            f" {v['computed_memory_mb']:,.0f} MB |"
        )
    return lines


def memory(of: dict[str, Any]) -> str:
    """Return the peak memory of corpora of several sizes, in words."""
    return ", ".join(f"{mb:.0f} MB for {size}" for size, mb in of["peak_memory_mb"].items())


SECTIONS = {  # module here, function; imported when measured, since --help needs no PyTorch
    "steps": ("steps", "measure"),
    "portable_cost": ("steps", "portable_cost"),
    "kept_memory": ("steps", "kept_memory"),
    "prepare": ("pipeline", "prepare"),
    "openwebtext": ("openwebtext", "measure"),
    "gpt124m": ("large", "measure"),
    "dag": ("pipeline", "dag"),
    "sweep": ("pipeline", "sweep"),
    "machine": ("steps", "machine"),
}
EXAMPLES = """\
examples:
  python -m resablate bench             everything
  python -m resablate bench dag sweep   two sections; the others' figures stay as they are"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = EXAMPLES
    known = ", ".join(SECTIONS)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {known} (all)")


def main(arguments: argparse.Namespace) -> None:
    """Measure the sections, by default all; write and print them with what is known already."""
    sections = arguments.sections
    try:
        text = README.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{README}: {error.strerror}; run from the repository's root") from None
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise UserError(f"{README}: must hold {BEGIN} and {END} once each")
    if unknown := set(sections) - set(SECTIONS):
        raise UserError(f"bench has no {sorted(unknown)[0]}; it has {', '.join(SECTIONS)}")
    result = read_json(RESULT, "measure everything: python -m resablate bench") if sections else {}
    print(f"{', '.join(sections or SECTIONS)}: about 15 minutes for all", flush=True)
    for name in dict.fromkeys((*(sections or SECTIONS), "machine")):
        print(f"{name} ...", flush=True)
        module, function = SECTIONS[name]
        result[name] = getattr(importlib.import_module(f"resablate.bench.{module}"), function)()
    write_text(RESULT, json.dumps(result, indent=1) + "\n")
    before, rest = text.split(BEGIN)
    made = table(result)
    write_text(README, f"{before}{BEGIN}\n{made}\n{END}{rest.split(END)[1]}")
    print(made)


def command(arguments: list[str]) -> None:
    """Do what python -m resablate.bench is asked."""
    parser = commandline.Parser(prog="python -m resablate.bench", description=__doc__)
    configure(parser)
    main(parser.parse_args(arguments))


if __name__ == "__main__":
    commandline.run_command(command, sys.argv[1:])
