"""The tables that only the paper's own scales have: the setup, and one table over both scales."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from resablate import cells, labels
from resablate.cells import Kind, Section, Table
from resablate.params import Run
from resablate.sizes import n_params, sizes

COUNT = Kind("count", ",d")
NUMBER = Kind("number", "g")
TOKENS = Kind("tokens", ",d")


def _final_lr(run: Run) -> float:
    return run.lr if run.schedule == "constant" else run.min_lr


SETUP: dict[str, tuple[str, Kind, Callable[[Run], Any]]] = {
    "n_layer": ("Layers", COUNT, lambda run: run.n_layer),
    "n_embd": ("Width", COUNT, lambda run: run.n_embd),
    "n_head": ("Heads", COUNT, lambda run: run.n_head),
    "block_size": ("Context, tokens", COUNT, lambda run: run.block_size),
    "n_params": ("Parameters", COUNT, n_params),
    "batch_size": ("Sequences a micro-batch", COUNT, lambda run: run.batch_size),
    "accumulation": ("Micro-batches an update", COUNT, lambda run: run.accumulation),
    "steps": ("Updates", COUNT, lambda run: run.steps),
    "tokens": ("Tokens seen", TOKENS, lambda run: sizes(run).tokens),
    "dropout": ("Dropout", NUMBER, lambda run: run.dropout),
    "lr": ("Peak learning rate", NUMBER, lambda run: run.lr),
    "min_lr": ("Final learning rate", NUMBER, _final_lr),
    "warmup_steps": ("Warm-up, updates", COUNT, lambda run: run.warmup_steps),
    "beta1": ("AdamW β₁", NUMBER, lambda run: run.beta1),
    "beta2": ("AdamW β₂", NUMBER, lambda run: run.beta2),
    "weight_decay": ("Weight decay", NUMBER, lambda run: run.weight_decay),
    "grad_clip": ("Gradient clip", NUMBER, lambda run: run.grad_clip),
    "eval_interval": ("Updates between evaluations", COUNT, lambda run: run.eval_interval),
    "n_evaluations": ("Evaluations", COUNT, lambda run: sizes(run).n_evaluations),
}
WORDS: dict[str, tuple[str, Callable[[Run], str]]] = {
    "schedule": ("Schedule", lambda run: run.schedule),
    "tie_weights": ("Embedding and head", lambda run: "tied" if run.tie_weights else "untied"),
    "attention": ("Attention", lambda run: run.attention),
    "eval_batches": ("Validation batches", lambda run: run.eval_batches),
    "dtype": ("Matrix products in", lambda run: run.dtype),
}


def setup(runs: Mapping[tuple[str, str], Run]) -> Table:
    """Return Table 1, computed from the resolved parameters of (scale, implementation)."""
    columns = {
        f"{scale}.{impl}": f"{labels.scale(scale)}, {labels.impl(impl)}" for scale, impl in runs
    }
    of = dict(zip(columns, runs.values(), strict=True))
    rows = {
        key: (label, {c: cells.value(kind, value(run)) for c, run in of.items()})
        for key, (label, kind, value) in SETUP.items()
    }
    rows |= {
        key: (label, {c: cells.value(NUMBER, None, 0, word(run)) for c, run in of.items()})
        for key, (label, word) in WORDS.items()
    }
    notes = [
        "From params.yaml, as the runs resolve it; parameters, tokens and evaluations are computed."
        " Both skips' factors are all in which the configurations differ.",
        "Printed in full; machine-readable beside this file in `table1.csv`.",
    ]
    return Table(1, "Setup", [Section("Hyperparameter", columns, rows)], notes)


def joined(first: Table, second: Table, scale: str) -> Table:
    """Return two tables of one number as one; the ids of the second's rows begin with its scale."""
    sections = [
        replace(
            section,
            head=f"{section.head}, {labels.scale(scale)}",
            rows={
                key if key == scale else f"{scale}.{key}": row for key, row in section.rows.items()
            },
        )
        for section in second.sections
    ]
    notes = list(dict.fromkeys([*first.notes[:-1], *second.notes]))
    title = f"{first.title}, and at {labels.scale(scale)}"
    return Table(first.key, title, [*first.sections, *sections], notes)
