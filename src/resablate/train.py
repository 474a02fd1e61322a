"""One training run: schedule, the loop, evaluation.

A row of the curve describes the model after `step` updates: losses and hidden states of these very
weights, and the gradient of the next batch at them. The last row's gradient is computed and thrown
away, so that every row means the same.
"""

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from resablate import checkpoint, diagnostics
from resablate.data import Batch, Tokens
from resablate.dropout import Masks
from resablate.model import GPT
from resablate.optimiser import OPTIMISERS
from resablate.params import Run
from resablate.progress import Progress
from resablate.trail import Trail

SAVE_SECONDS = 15.0  # between saves of the resumable state
Note = Callable[[str, Mapping[str, Tensor]], None]


class DivergedError(Exception):
    """A loss or a gradient norm stopped being finite at update `step`."""

    def __init__(self, step: int) -> None:
        super().__init__(f"not finite at step {step}")
        self.step = step


def learning_rate(run: Run, step: int) -> float:
    """Return the rate of update `step` (from 0): linear warm-up, then constant or a cosine.

    (step + 1) / (warmup_steps + 1) of lr while warming up, never 0; the cosine ends at min_lr with
    the last update.
    """
    if step < run.warmup_steps:
        return run.lr * (step + 1) / (run.warmup_steps + 1)
    if run.schedule == "constant":
        return run.lr
    progress = (step - run.warmup_steps) / max(1, run.steps - 1 - run.warmup_steps)
    return run.min_lr + 0.5 * (1.0 + math.cos(math.pi * progress)) * (run.lr - run.min_lr)


def total_norm(gradients: list[Tensor]) -> Tensor:
    """Return the global L2 norm as a scalar tensor."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))


def _ignore(phase: str, tensors: Mapping[str, Tensor]) -> None:
    """Note nothing."""


class Trainer:
    """The state of one run, and its loop."""

    def __init__(self, run: Run, seed: int, tokens: Tokens, device: torch.device) -> None:
        self.run, self.seed, self.tokens, self.device = run, seed, tokens, device
        self.model = GPT(run, tokens.vocab_size)
        self.model.init(seed)
        self.model.to(device)
        self.optimiser = OPTIMISERS[run.optimiser](self.model, run)
        self.threads = torch.get_num_threads()
        self.fixed = self._draw(run.eval_seed, 0)  # also where the hidden states are measured
        self.step = 0
        self.curve: list[dict[str, Any]] = []
        self.trail = Trail()
        self.losses: list[float] = []  # of the updates since the last row
        self.norms: list[float] = []  # gradient norms before clipping, likewise
        self.pending: list[Tensor] = []  # (loss, norm) pairs still on the device

    # -- one update ---------------------------------------------------------------------------

    @property
    def micros(self) -> range:
        """The numbers of the micro-batches that this process computes: all."""
        return range(self.run.accumulation)

    def combine(self, total: Tensor) -> None:
        """Add what other processes computed to `total` and to every .grad: here, nothing."""

    def gradient(self, note: Note | None = None) -> tuple[Tensor, Tensor]:
        """Put the gradient of the next batch into .grad; return its loss and global L2 norm.

        note: is shown each phase's tensors by name, as the trail names them.
        """
        run, total = self.run, torch.zeros((), device=self.device)
        note = note or _ignore
        note("weights", self.optimiser.parameters)
        self.optimiser.zero_grad()
        for micro in self.micros:
            position = self.step * run.accumulation + micro
            batch = self._to_device(self.tokens.train_batch(self.seed, position, run.batch_size))
            note("data", {f"{name}.{micro}": part for name, part in batch._asdict().items()})
            masks = None
            if run.dropout:
                masks = Masks(run, self.seed, position, self.device, self.threads)
            show = partial(note, "forward") if micro == self.micros[-1] else None
            loss = self.model.loss(*batch, masks, show) / run.accumulation
            loss.backward()
            total += loss.detach()
        self.combine(total)
        note("forward", {"loss": total})
        note("backward", {name: p.grad for name, p in self.optimiser.parameters.items()})
        norm = total_norm([p.grad for p in self.optimiser.parameters.values()])
        return total, norm

    def update(self, loss: Tensor, norm: Tensor) -> None:
        """Clip the gradient to grad_clip and take the step, in one pass over the parameters."""
        divisor = (norm / self.run.grad_clip).clamp_(min=1.0)
        self.optimiser.step(self.step + 1, learning_rate(self.run, self.step), divisor)
        self.pending.append(torch.stack([loss, norm]))
        self.step += 1

    def drain(self) -> None:
        """Take the losses and norms off the device; DivergedError at a row if one is not finite.

        At a row only: earlier, the clock would decide after which update the run ends.
        """
        if self.pending:
            losses, norms = zip(*torch.stack(self.pending).tolist(), strict=True)
            self.losses += losses
            self.norms += norms
            self.pending.clear()
        if self.is_row():
            for n, pair in enumerate(zip(self.losses, self.norms, strict=True)):
                if not all(map(math.isfinite, pair)):
                    raise DivergedError(self.step - len(self.losses) + n)

    # -- evaluation ---------------------------------------------------------------------------

    def _to_device(self, batch: Batch) -> Batch:
        return Batch(*(part.to(self.device, non_blocking=True) for part in batch))

    def _draw(self, seed: int, position: int) -> list[Batch]:
        batches = self.tokens.val_batches(
            seed, position, self.run.n_eval_batches, self.run.batch_size
        )
        return [self._to_device(batch) for batch in batches]

    @torch.no_grad()
    def loss_over(self, batches: list[Batch]) -> float:
        """Return the mean loss per token over batches, without dropout."""
        losses = torch.stack([self.model.loss(*self._to_device(batch)) for batch in batches])
        weights = [batch.targets.numel() for batch in batches]
        return math.fsum(map(math.prod, zip(losses.tolist(), weights, strict=True))) / sum(weights)

    @torch.no_grad()
    def evaluate(self) -> dict[str, Any]:
        """Return the row of the curve that these weights make, but for the gradient."""
        is_fixed = self.run.eval_batches == "fixed"
        n = len(self.losses)
        row = {
            "step": self.step,
            "lr": learning_rate(self.run, min(self.step, self.run.steps - 1)),
            "train_loss": math.fsum(self.losses) / n if n else None,
            "val_loss": self.loss_over(
                self.fixed if is_fixed else self._draw(self.seed, self.step)
            ),
            "clip_fraction": sum(x > self.run.grad_clip for x in self.norms) / n if n else None,
        }
        if not math.isfinite(row["val_loss"]):
            raise DivergedError(self.step)
        row |= diagnostics.activations(
            self.model, diagnostics.look(self.model, self.fixed[0].tokens)
        )
        last_lr = learning_rate(self.run, max(self.step - 1, 0))
        return row | diagnostics.optimiser_state(self.optimiser, self.step, last_lr)

    # -- the loop -----------------------------------------------------------------------------

    def is_row(self) -> bool:
        """Tell whether the curve has a row at this step."""
        return self.step % self.run.eval_interval == 0 or self.step == self.run.steps

    def train(
        self, progress: Progress, state: Path, on_row: Callable[[], None] | None = None
    ) -> None:
        """Train to the end, saving to `state` now and then; DivergedError when no longer finite.

        on_row: is called after each new row of the curve.
        """
        saved = time.monotonic()
        while True:
            row = self.evaluate() if self.is_row() else None
            loss, norm = self.gradient(partial(self.trail.add, self.step) if row else None)
            if row:
                self.add(row | diagnostics.gradient_norms(self.model))
                if on_row:
                    on_row()
            if self.step == self.run.steps:
                return
            self.update(loss, norm)
            progress.update(self.step)
            if progress.due() or self.is_row():
                self.drain()
                progress.update(self.step, self.losses[-1])
            if time.monotonic() - saved >= SAVE_SECONDS:
                self.drain()
                checkpoint.write_state(state, self.state())
                saved = time.monotonic()

    def add(self, row: dict[str, Any]) -> None:
        """Put a row on the curve and begin the next interval."""
        if not math.isfinite(row["grad_norm"]):
            raise DivergedError(self.step)
        self.curve.append(row)
        self.losses, self.norms = [], []

    # -- resume -------------------------------------------------------------------------------

    def state(self) -> checkpoint.State:
        """Return all that the rest of the run depends on; its streams need no state."""
        document = {
            "step": self.step, "curve": self.curve, "losses": self.losses, "norms": self.norms,
            "trail": self.trail.lines,
        }  # fmt: skip
        return checkpoint.State(checkpoint.collect(self.optimiser), document)

    def resume(self, state: checkpoint.State) -> None:
        """Go on from a state as if the run had never stopped."""
        checkpoint.restore(state.tensors, self.optimiser)
        document = dict(state.document)
        self.trail.lines = document.pop("trail")
        for name, value in document.items():
            setattr(self, name, value)
