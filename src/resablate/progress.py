"""How far a run is: a bar on a terminal, plain lines elsewhere, a file for who watches many runs.

With RESABLATE_PROGRESS set to a path, that file holds one JSON line, rewritten about once a second:
step, steps, loss (nats per token), tokens_per_s. None of it enters a file whose hash matters.
"""

import json
import os
import sys
import time
from pathlib import Path

from tqdm import tqdm

from resablate.files import write_text

SECONDS = 1.0  # between looks at the loss
LINE_SECONDS = 15.0  # between plain lines


class Progress:
    """Counts updates; asks for the loss only when it shows it."""

    def __init__(self, name: str, steps: int, done: int, tokens_per_step: int) -> None:
        self.name, self.steps, self.step, self.tokens_per_step = name, steps, done, tokens_per_step
        self.first, self.began = done, time.monotonic()
        self.shown = self.printed = self.began
        self.file = os.environ.get("RESABLATE_PROGRESS")
        self.bar = None
        if sys.stderr.isatty() and not self.file:
            self.bar = tqdm(total=steps, initial=done, desc=name, unit="step", dynamic_ncols=True)

    def due(self) -> bool:
        """Tell whether a second has passed since the last time that the loss was shown."""
        return time.monotonic() - self.shown >= SECONDS

    def update(self, step: int, loss: float | None = None) -> None:
        """Note that `step` updates are done; show `loss`, if given."""
        if self.bar:
            self.bar.update(step - self.step)
        self.step = step
        if loss is None:
            return
        now = self.shown = time.monotonic()
        speed = (step - self.first) * self.tokens_per_step / max(now - self.began, 1e-9)
        if self.bar:
            self.bar.set_postfix(loss=f"{loss:.4f}", tokens_per_s=f"{speed:,.0f}")
        if self.file:
            line = {"step": step, "steps": self.steps, "loss": loss, "tokens_per_s": round(speed)}
            write_text(Path(self.file), json.dumps(line) + "\n")
        elif not self.bar and now - self.printed >= LINE_SECONDS:
            self.printed = now
            left = (self.steps - step) * self.tokens_per_step / max(speed, 1e-9)
            print(
                f"{self.name}: step {step}/{self.steps}, loss {loss:.4f},"
                f" {speed:,.0f} tokens/s, {left:.0f} s left",
                flush=True,
            )

    def close(self) -> None:
        """Leave the terminal tidy."""
        if self.bar:
            self.bar.close()
