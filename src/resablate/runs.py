"""One run from parameters to outs: set up, resume, train, measure, write whole."""

import csv
import io
import json
import math
import time
from pathlib import Path
from typing import Any

from resablate import checkpoint, environment, parent, paths
from resablate.data import Tokens
from resablate.files import remove_leftovers, write_text
from resablate.params import Run
from resablate.progress import Progress
from resablate.train import DivergedError, Trainer

SEQUENCES = 64  # per forward pass over the whole validation split, at most
PASS_TOKENS = 16_384  # likewise: float32 logits of 50,257 columns take 3.3 GB
LAST_ROW = {  # diagnostics of the run's document, from the last row of its curve
    "token_cosine": "token_cosine_{last}",
    "effective_rank": "effective_rank_{last}",
    "grad_norm_block0": "grad_norm_block0",
    "adam_eps_share": "adam_eps_share",
    "update_ratio": "update_ratio",
}


def execute(
    name: str,
    run: Run,
    seed: int,
    tokens: Tokens,
    outs: paths.RunPaths,
    trainer_class: type[Trainer] = Trainer,
) -> None:
    """Train `run` and write its outs; a run that was killed goes on where it was saved.

    Meanwhile its curve so far lies beside the resumable state, for whoever wants to look on.
    """
    parent.end_with_dvc()
    began = time.monotonic()
    device = environment.configure(run)
    trainer = trainer_class(run, seed, tokens, device)
    key = checkpoint.run_key(run, seed, tokens.sha256, device)
    state = checkpoint.state_path(key)
    live = Live(name, run, state)
    for path in (*outs, state, *live.files):
        remove_leftovers(path)
    if saved := checkpoint.read_state(state):
        trainer.resume(saved)
        print(f"{name}: resumed at step {trainer.step} of {run.steps}", flush=True)
    first = trainer.step
    progress = Progress(name, run.steps, first, run.tokens_per_step)
    diverged_at = None
    try:
        trainer.train(progress, state, lambda: live.write(trainer.curve))
    except DivergedError as error:
        diverged_at = error.step
    finally:
        progress.close()
    document = describe(trainer, diverged_at)
    write_outs(outs, trainer, document)
    environment.write_record(outs.metrics, device, time.monotonic() - began, first)
    for path in (state, *live.files):
        path.unlink(missing_ok=True)
    print(f"{name}: {_summary(document)}", flush=True)


class Live:
    """The curve so far of a run at work, `<key>.csv` beside `<key>.json`, which names the run."""

    def __init__(self, name: str, run: Run, state: Path) -> None:
        self.files = state.with_suffix(".json"), state.with_suffix(".csv")
        self._document = {"name": name, "steps": run.steps}

    def write(self, curve: list[dict[str, Any]]) -> None:
        """Write both files, each whole."""
        write_text(self.files[0], json.dumps(self._document) + "\n")
        write_text(self.files[1], _csv(curve))


def describe(trainer: Trainer, diverged_at: int | None) -> dict[str, Any]:
    """Return the run's document. Losses in nats per token; None throughout for a diverged run.

    `best` is the minimum over evaluations, of which `perplexity` is the exponential; `final` is the
    last one; `full` covers the whole validation split once, and `bits_per_byte` is made from it.
    """
    run, tokens = trainer.run, trainer.tokens
    losses = dict.fromkeys(
        ("best_val_loss", "best_step", "final_val_loss", "full_val_loss", "bits_per_byte")
    )
    finished = diverged_at is None
    if finished:
        best = min(trainer.curve, key=lambda row: row["val_loss"])
        sequences = max(1, min(SEQUENCES, PASS_TOKENS // run.block_size))
        full = trainer.loss_over(tokens.whole_val(sequences))
        per_byte = tokens.vocab["val_tokens"] / tokens.vocab["val_bytes"]
        values = (best["val_loss"], best["step"], trainer.curve[-1]["val_loss"], full)
        losses = dict(zip(losses, (*values, full * per_byte / math.log(2)), strict=True))
    return {
        "status": "finished" if finished else "diverged",
        **losses,
        "perplexity": math.exp(losses["best_val_loss"]) if finished else None,
        "diverged_at": diverged_at,
        "n_params": sum(p.numel() for p in trainer.model.parameters()),
        "steps": run.steps,
        "n_evaluations": len(trainer.curve),
        "eval_tokens": run.n_eval_batches * run.batch_size * run.block_size,
        "diagnostics": _diagnostics(trainer.curve[-1] if finished else None, run.n_layer),
    }


def _diagnostics(row: dict[str, Any] | None, last: int) -> dict[str, float | None]:
    """Return the diagnostics after training, on the fixed validation batches."""
    if row is None:
        return dict.fromkeys(("hidden_norm_growth", *LAST_ROW))
    growth = row[f"hidden_norm_{last}"] / row["hidden_norm_0"]
    named = {name: row[column.format(last=last)] for name, column in LAST_ROW.items()}
    return {"hidden_norm_growth": growth} | named


def write_outs(outs: paths.RunPaths, trainer: Trainer, document: dict[str, Any]) -> None:
    """Write curve, weights, trail and document, each whole or not at all."""
    write_text(outs.curve, _csv(trainer.curve))
    write_text(outs.trail, trainer.trail.text(trainer.step, document["status"]))
    checkpoint.write_weights(outs.model, trainer.model, trainer.tokens.sha256["vocab.json"])
    write_text(outs.metrics, json.dumps(document, indent=1, allow_nan=False) + "\n")


def _csv(rows: list[dict[str, Any]]) -> str:
    """Return rows as CSV; floats in full precision, None as an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0] if rows else ["step"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _summary(document: dict[str, Any]) -> str:
    """Return the outcome in words."""
    if document["status"] == "diverged":
        return f"diverged at step {document['diverged_at']}; recorded as such"
    return (
        f"best val loss {document['best_val_loss']:.4f} at step {document['best_step']},"
        f" final {document['final_val_loss']:.4f}"
    )
