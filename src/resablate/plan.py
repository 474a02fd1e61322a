"""What cells will cost, before anything starts: FLOPs, tokens, memory, time, dollars.

    python -m resablate plan                                   the paper's own scales
    python -m resablate plan 'train@gpt10m-residualgpt-*'      some cells
    python -m resablate plan dvc.yaml --no-measure             the root pipeline, nothing measured
    python -m resablate plan --price H100=2.49 --utilisation 0.35

A target is a pipeline's file, or a pattern for a stage (`train@gpt10m-*`, with or without
`paper/dvc.yaml:`) or for what stands behind its @.

This machine's time is measured: a few real micro-batches of each shape, an update, an evaluation
and a save, in a process of its own, once per environment; a whole run is extrapolated from them. A
shape that would take more than 60 s to measure is estimated from the rate of a large matrix
product, and the plan says so. A run on one CPU thread is measured in CPU time. The GPUs' time is
not: FLOPs over a stated peak times a stated utilisation, which small models do not reach; prices
are stated too. Memory is computed (src/resablate/sizes.py), for each way to cut a batch.
"""

import argparse
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from resablate import dag, labels, measure, paper, params, paths, rates, sizes
from resablate.errors import UserError
from resablate.params import Run
from resablate.rates import Gpu

DEFAULT = (paper.DVC_FILE,)
COSTLY = (  # what decides a step's time
    *("n_layer", "n_head", "n_embd", "block_size", "batch_size", "accumulation", "steps"),
    *("attention", "mixer", "ffn", "norm", "block", "attention_pattern", "value_residual"),
    *("position", "tie_weights", "optimiser", "dtype", "numerics", "device", "threads"),
    *("eval_interval", "n_eval_batches", "dropout"),
)
CUTS = 4  # ways shown to cut a batch into micro-batches
UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


class Shape(NamedTuple):
    """The cells that cost alike: they differ in values such as seed, skips or learning rate."""

    scale: str
    impl: str
    run: Run  # of the first, which is measured
    cells: int


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: paper/dvc.yaml")
    parser.add_argument("--no-measure", action="store_true", help="leave this machine out")
    parser.add_argument(
        "--utilisation",
        type=float,
        default=rates.UTILISATION,
        metavar="U",
        help=f"share of a GPU's peak that is reached ({rates.UTILISATION}, an assumption)",
    )
    parser.add_argument(
        "--price",
        action="append",
        default=[],
        metavar="NAME=DOLLARS",
        help=f"of a GPU an hour, instead of what {rates.PRICES_SEEN} asked",
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")


def shapes(cells: Sequence[dag.Cell], declared: params.Params) -> list[Shape]:
    """Return the shapes of cells, in order."""
    found: dict[tuple[Any, ...], Shape] = {}
    for scale, impl, run in dag.runs(cells, declared):
        costly = tuple(getattr(run, name) for name in COSTLY)
        key = (scale, impl, *costly)
        shape = found.get(key, Shape(scale, impl, run, 0))
        found[key] = shape._replace(cells=shape.cells + 1)
    return list(found.values())


def data_tokens(dataset: str) -> dict[str, int | None]:
    """Return the tokens of each split; None while a data set is not prepared."""
    document = paths.data_document(dataset)
    known = json.loads(document.read_text(encoding="utf-8")) if document.is_file() else {}
    return {split: known.get(f"{split}_tokens") for split in ("train", "val")}


def describe(shape: Shape, gpus: Sequence[Gpu], options: argparse.Namespace) -> dict[str, Any]:
    """Return the numbers of one run of a shape."""
    run, total, data = shape.run, sizes.sizes(shape.run), data_tokens(shape.run.dataset)
    whole_val = (data["val"] or 0) * sizes.flops_per_token(run) // 3
    flops = total.training_flops + total.evaluation_flops + whole_val
    fit = gpus if run.device != "cpu" else ()
    hours = {gpu.name: flops / (gpu.peak[run.dtype] * options.utilisation) / 3600 for gpu in fit}
    here = None
    if not options.no_measure:
        costs = measure.measured(shape.scale, run)
        here = {"seconds": costs.seconds(run, data["val"] or 0), **costs._asdict()}
    return {
        "scale": shape.scale,
        "impl": shape.impl,
        "cells": shape.cells,
        "n_params": sizes.n_params(run),
        "step_flops": total.training_flops // run.steps,
        "training_flops": total.training_flops,
        "evaluation_flops": total.evaluation_flops + whole_val,
        "tokens": total.tokens,
        "data_tokens": data["train"],
        "epochs": total.tokens / data["train"] if data["train"] else None,
        "memory": {f"{b} x {a}": sizes.memory(r) for b, a, r in cuts(run)},
        "here": here,
        "gpus": {
            gpu.name: {"hours": hours[gpu.name], "dollars": hours[gpu.name] * gpu.price}
            for gpu in fit
        },
    }


def cuts(run: Run) -> list[tuple[int, int, Run]]:
    """Return (sequences, micro-batches, run) for ever smaller micro-batches of one update."""
    found = []
    for factor in (2**i for i in range(CUTS)):
        if run.batch_size % factor == 0:
            cut = {
                "batch_size": run.batch_size // factor, "accumulation": run.accumulation * factor
            }  # fmt: skip
            found.append((*cut.values(), run.model_copy(update=cut)))
    return found


def duration(seconds: float) -> str:
    """Return a time in the largest unit of which there are two or more."""
    for size, unit in UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s"


def report(shape: Shape, numbers: dict[str, Any]) -> list[str]:
    """Return the lines about a shape."""
    run, n = shape.run, shape.cells
    epochs = "not prepared yet"
    if numbers["epochs"]:
        epochs = f"{numbers['epochs']:.3g} epochs of {numbers['data_tokens']:,}"
    cut = ", ".join(f"{cut} {size / 1e9:.3g} GB" for cut, size in numbers["memory"].items())
    mixer = "" if run.mixer == "attention" else f", {run.mixer}"
    title = f"{labels.scale(shape.scale)}, {labels.impl(shape.impl)}{mixer}"
    lines = [
        f"{title}: {n} cells of {run.steps:,} updates, {numbers['n_params']:,} parameters",
        f"  FLOPs    {numbers['training_flops']:.3g} a run to train ({numbers['step_flops']:.3g} an"
        f" update), {numbers['evaluation_flops']:.2g} to evaluate",
        f"  tokens   {numbers['tokens']:,} a run; {run.dataset}: {epochs}",
        f"  memory   {cut} (sequences x micro-batches, {run.dtype})",
    ]
    if here := numbers["here"]:
        lines.append(
            f"  here     {duration(here['seconds'])} a run, {duration(n * here['seconds'])} for"
            f" all: {_how(here, run)}"
        )
    for name, gpu in numbers["gpus"].items():
        lines.append(
            f"  {name}     {duration(3600 * gpu['hours'])} and ${gpu['dollars']:,.2f} a run,"
            f" {duration(n * 3600 * gpu['hours'])} and ${n * gpu['dollars']:,.2f} for all"
        )
    return [*lines, ""]


def _how(here: dict[str, Any], run: Run) -> str:
    """Return how a time was found."""
    where = f"{here['device']}, {here['threads']} threads"
    if here["clock"] == "gemm":
        return f"estimated, not measured: {measure.GEMM_SHARE:.0%} of the rate of GEMM, {where}"
    clock = " in CPU time" if here["clock"] == "cpu" else ""
    return (
        f"measured{clock}, {where}, {here['batch']} of {run.batch_size} sequences,"
        f" peak {here['memory'] / 1e9:.2g} GB"
    )


def total(found: Sequence[dict[str, Any]], options: argparse.Namespace) -> list[str]:
    """Return the lines about all cells together."""
    lines = [f"all {sum(one['cells'] for one in found)} cells, one after the other"]
    if all(one["here"] for one in found):
        here = sum(one["cells"] * one["here"]["seconds"] for one in found)
        guessed = any(one["here"]["clock"] == "gemm" for one in found)
        lines.append(f"  here     {duration(here)}{', not all measured' if guessed else ''}")
    names = found[0]["gpus"] if all(one["gpus"] for one in found) else ()
    for name in names:
        hours = sum(one["cells"] * one["gpus"][name]["hours"] for one in found)
        dollars = sum(one["cells"] * one["gpus"][name]["dollars"] for one in found)
        lines.append(f"  {name}     {duration(3600 * hours)}, ${dollars:,.2f}")
    if not names:
        return lines
    own = ", some changed here" if options.price else ""
    return [
        *lines,
        f"GPUs: {options.utilisation:.0%} of the dense peak, an assumption (--utilisation);"
        f" dollars: {rates.PRICES_SEEN}{own} (--price).",
        "A batch cut otherwise is the same update of other draws: another run, not the same bits.",
    ]


def main(options: argparse.Namespace) -> int:
    """Print the plan; return the exit status."""
    if not 0 < options.utilisation <= 1:
        raise UserError(f"--utilisation {options.utilisation}: must be above 0 and at most 1")
    gpus = rates.priced(options.price)
    declared = params.load()
    cells = dag.select(options.targets, DEFAULT)
    if any(cell.file == paper.DVC_FILE for cell in cells):
        paper.load(declared)  # for its errors
    asked = shapes(cells, declared)
    found = [describe(shape, gpus, options) for shape in asked]
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    lines = [line for pair in zip(asked, found, strict=True) for line in report(*pair)]
    print("\n".join([*lines, *total(found, options)]))
    return 0
