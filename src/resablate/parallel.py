"""One run shared among processes, a GPU each: torchrun's data parallel.

    RESABLATE_RANKS=2 dvc repro -s paper/dvc.yaml:train_124m@gpt124m-residualgpt-full-1337
    torchrun --nproc-per-node 2 -m resablate.stages.paper_train gpt124m residualgpt full 1337

Rank r of n computes micro-batches r, r + n, r + 2 n, ... of each update: which batch and which
dropout mask a micro-batch has depends on its number alone, so that one rank and two train on the
same data in the same order. The gradients are summed over ranks, which rounds differently from one
rank's sum; with one number of ranks the bits are the same at every rerun and after a kill.
Rank 0 alone evaluates, saves and writes; the others wait for its next gradient.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from resablate import checkpoint, environment, parent, paths, runs
from resablate.data import Tokens
from resablate.errors import UserError
from resablate.params import Run
from resablate.progress import Progress
from resablate.train import DivergedError, Trainer

RANKS = "RESABLATE_RANKS"
AGENT = "RESABLATE_AGENT"  # process that started the ranks
PATIENCE = timedelta(hours=2)  # for rank 0 while it evaluates
POLL_SECONDS = 0.5


class SharedTrainer(Trainer):
    """A trainer that computes its rank's micro-batches; all ranks take the same updates."""

    stopped = False  # rank 0 has diverged
    combined_at = -1  # the step of the last exchange

    @property
    def micros(self) -> range:
        """The micro-batches of an update that this rank computes."""
        return range(dist.get_rank(), self.run.accumulation, dist.get_world_size())

    def combine(self, total: Tensor) -> None:
        """Sum the loss and the gradients over all ranks, in place."""
        gradients = [p.grad for p in self.optimiser.parameters.values()]
        self.combined_at = self.step
        self._exchange([total, *gradients])

    def _exchange(self, tensors: list[Tensor], *, stop: bool = False) -> None:
        # One buffer, so that all is summed in one order: the ring's.
        flags = torch.full((1,), float(stop), device=self.device)
        flat = torch.cat([flags, *(t.reshape(-1) for t in tensors)])
        dist.all_reduce(flat)
        self.stopped = bool(flat[0] > 0)
        sizes = [t.numel() for t in tensors]
        for tensor, part in zip(tensors, flat[1:].split(sizes), strict=True):
            tensor.copy_(part.view_as(tensor))

    @torch.no_grad()
    def share(self) -> None:
        """Give every rank the state of rank 0."""
        step = torch.tensor([self.step], device=self.device)
        for tensor in (step, *checkpoint.collect(self.optimiser).values()):
            dist.broadcast(tensor.data, src=0)
        self.step = int(step)

    def train(
        self, progress: Progress, state: Path, on_row: Callable[[], None] | None = None
    ) -> None:
        """Train as rank 0; the others are told when the run ends early."""
        self.share()
        try:
            super().train(progress, state, on_row)
        except DivergedError:
            if self.combined_at < self.run.steps:  # else they have ended by themselves
                nothing = [torch.zeros_like(p) for p in self.optimiser.parameters.values()]
                self._exchange([torch.zeros((), device=self.device), *nothing], stop=True)
            raise

    def follow(self) -> None:
        """Train as another rank: take rank 0's state, then every update that it takes."""
        self.share()
        while True:
            loss, norm = self.gradient()
            if self.stopped or self.step == self.run.steps:
                return
            self.update(loss, norm)
            self.pending.clear()


def execute(name: str, run: Run, seed: int, tokens: Tokens, outs: paths.RunPaths) -> None:
    """Train `run` and write its outs: alone, or with as many processes as RESABLATE_RANKS says."""
    if "LOCAL_RANK" in os.environ:  # torchrun's mark
        _work(name, run, seed, tokens, outs)
    elif (n := _ranks()) > 1:
        _check(run, n)
        _launch(n)
    else:
        runs.execute(name, run, seed, tokens, outs)


def _ranks() -> int:
    text = os.environ.get(RANKS, "1")
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"{RANKS}: {text!r} must be a number of processes, 1 or more")
    return int(text)


def _check(run: Run, n: int) -> None:
    """UserError where a run cannot be shared among n ranks."""
    if n > run.accumulation:
        raise UserError(
            f"accumulation: {run.accumulation} micro-batches an update cannot be shared among {n}"
            f" processes; set {RANKS} to {run.accumulation} or less, or raise accumulation and"
            " lower batch_size by the same factor"
        )
    if run.device != "cpu" and 0 < torch.cuda.device_count() < n:
        raise UserError(
            f"{RANKS}: {n} processes need a GPU each, and there are {torch.cuda.device_count()}"
        )


def _launch(n: int) -> None:
    """Start this very command n times under torchrun, and end with DVC."""
    # Imported late: one process alone needs nothing of it.
    from torch.distributed import run as torchrun  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415

    parent.end_with_dvc()
    os.environ[AGENT] = str(os.getpid())
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or n) // n)))
    module = sys.modules["__main__"].__spec__.name
    options = ("--standalone", f"--nproc-per-node={n}", "--max-restarts=0")
    try:
        torchrun.main([*options, "-m", module, *sys.argv[1:]])
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        sys.exit(f"error: rank {rank} of {n} ended with status {failure.exitcode}; see above")


def _work(name: str, run: Run, seed: int, tokens: Tokens, outs: paths.RunPaths) -> None:
    """Be one rank."""
    _end_with_agent()
    # torchrun starts each rank in a session of its own; it is the agent that ends with DVC.
    os.environ.pop(parent.VARIABLE, None)
    _check(run, int(os.environ["WORLD_SIZE"]))
    os.environ.setdefault("NCCL_ALGO", "Ring")  # one order of summing, whatever the sizes
    os.environ.setdefault("NCCL_PROTO", "Simple")
    device = environment.configure(run)
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        if dist.get_rank() == 0:
            runs.execute(name, run, seed, tokens, outs, trainer_class=SharedTrainer)
        else:
            SharedTrainer(run, seed, tokens, device).follow()
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _end_with_agent() -> None:
    """Watch, in a thread, the process that started the ranks; end this one when it is gone."""
    agent = int(os.environ.get(AGENT) or os.getppid())

    def watch() -> None:
        while os.getppid() == agent:
            time.sleep(POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)  # a rank has nothing to tidy: files are written whole

    threading.Thread(target=watch, daemon=True).start()
