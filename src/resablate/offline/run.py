"""`offline run`: train cells inside a time limit and pack what they leave."""

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from resablate import allocator, dag, params, parent, sizes
from resablate.dag import Cell
from resablate.errors import UserError
from resablate.offline import pack

POLL_SECONDS = 0.2
GRACE_SECONDS = 10.0  # from the polite request to the kill
TIME_IS_UP = 3  # exit status


def command(cell: Cell) -> tuple[list[str], dict[str, str]]:
    """Return a cell's command and the environment to run it in, without a shell."""
    environment = allocator.keeping(os.environ)
    arguments = shlex.split(cell.cmd)
    while "=" in arguments[0]:
        name, _, value = arguments.pop(0).partition("=")
        if name == "PYTHONPATH" and name in os.environ:  # where the wheels that were brought lie
            value = os.pathsep.join((value, os.environ[name]))
        environment[name] = value
    # A stage that DVC runs ends with DVC; so shall this one with us.
    environment[parent.VARIABLE] = cell.name
    if arguments[0] == "python":
        arguments[0] = sys.executable
    return arguments, environment


def shortest_first(cells: list[Cell], declared: params.Params) -> list[Cell]:
    """Return the cells by the FLOPs that they take."""
    runs = (run for _, _, run in dag.runs(cells, declared))
    flops = {c.address: sizes.sizes(run).training_flops for c, run in zip(cells, runs, strict=True)}
    return sorted(cells, key=lambda cell: flops[cell.address])


def is_packed(folder: Path, cell: Cell, inputs: dict[str, Any]) -> bool:
    """Tell whether the folder holds a whole pack of this very cell."""
    manifest = folder / f"{pack.stem(cell)}.json"
    if not manifest.is_file():
        return False
    made = pack.read(manifest)
    return not dag.differences(made.inputs.model_dump(), inputs) and not pack.damage(folder, made)


class Work:
    """Cells at work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, tuple[Cell, subprocess.Popen[bytes], dict[str, Any]]] = {}
        self.failed: list[str] = []

    def start(self, cell: Cell, inputs: dict[str, Any]) -> None:
        """Train a cell."""
        arguments, environment = command(cell)
        process = subprocess.Popen(arguments, env=environment, stdin=subprocess.DEVNULL)
        self.running[cell.address] = (cell, process, inputs)

    def collect(self) -> None:
        """Pack the cells that have ended."""
        for address, (cell, process, inputs) in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[address]
            if process.returncode:
                self.failed.append(f"{address} ended with status {process.returncode}")
            elif changed := dag.differences(inputs, dag.inputs(cell)):
                self.failed.append(f"{address}: {', '.join(changed)} changed while it ran")
            else:
                pack.write(self.folder, cell, inputs)
                print(f"{address}: packed", flush=True)

    def stop(self) -> None:
        """End what runs; its state is saved."""
        processes = [process for _, process, _ in self.running.values()]
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + GRACE_SECONDS
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main(options: argparse.Namespace) -> int:
    """Train and pack the cells; return the exit status."""
    began = time.monotonic()
    end = began + (options.limit or float("inf"))
    asked = shortest_first(dag.select(options.cells), params.load())
    todo = [(cell, dag.inputs(cell)) for cell in asked]
    for cell, inputs in todo:
        if lost := [dep for dep, md5 in inputs["deps"].items() if md5 is None]:
            raise UserError(f"{cell.address}: {', '.join(lost)}: not there; bring it along")
    _warn_of_versions()
    options.out.mkdir(parents=True, exist_ok=True)
    todo = [(cell, inputs) for cell, inputs in todo if not is_packed(options.out, cell, inputs)]
    work = Work(options.out)
    try:
        while (todo or work.running) and time.monotonic() < end:
            while todo and len(work.running) < options.j:
                work.start(*todo.pop(0))
            time.sleep(POLL_SECONDS)
            work.collect()
    finally:
        work.stop()
    if work.failed:
        raise UserError("; ".join(work.failed))
    left = len(todo) + len(work.running)
    print(f"{len(asked) - left} of {len(asked)} cells are packed in {options.out}", flush=True)
    if left:
        print("the time was up: the same command goes on", flush=True)
    return TIME_IS_UP if left else 0


def _warn_of_versions() -> None:
    here = pack.versions()
    for name, version in pack.pinned().items():
        if here[name] != version:
            print(
                f"warning: {name} {here[name]} here, {version} in {pack.NUMERICS}: `take` will"
                " want --other-versions",
                file=sys.stderr,
            )
