"""Every path of the pipeline, relative to the repository root, as a function of its names.

A run is addressed by (pipeline, scale, arm, seed). The pipeline comes first, so that one
pipeline's aggregate can depend on its folder without depending on another pipeline's runs.
"""

from pathlib import Path
from typing import NamedTuple

PARAMS = Path("params.yaml")
SCHEMA = Path("data/params.schema.json")
RUNS_CSV = Path("metrics/runs.csv")
SUMMARY = Path("metrics/summary.json")
TABLES = Path("metrics/tables")
PLOTS = Path("plots")
ENVIRONMENTS = Path("metrics/environments")


def main_root() -> Path:
    """Return the root of the main working copy, absolute; the current folder is the root of a copy.

    `dvc exp run --queue` and `--temp` run in copies below .dvc/tmp/exps of the main one; what is
    kept from run to run lies in the main one, since DVC deletes the copies.
    """
    return Path(str(Path.cwd()).partition("/.dvc/tmp/exps/")[0])


class RunPaths(NamedTuple):
    """The outs of one training run."""

    metrics: Path
    curve: Path
    model: Path
    trail: Path


def run(pipeline: str, scale: str, arm: str, seed: int) -> RunPaths:
    """Return the outs of a cell of a pipeline's grid; the root pipeline is `main`."""
    cell = f"{pipeline}/{scale}/{arm}/{seed}"
    return RunPaths(
        Path(f"metrics/runs/{cell}.json"),
        Path(f"plots/curves/{cell}.csv"),
        Path(f"data/models/{cell}.safetensors"),
        Path(f"metrics/trails/{cell}.csv"),
    )


def trial() -> RunPaths:
    """Return the outs of the stage `trial`."""
    return RunPaths(
        Path("metrics/trial.json"),
        Path("plots/curves/trial.csv"),
        Path("data/models/trial.safetensors"),
        Path("metrics/trails/trial.csv"),
    )


def runs(pipeline: str) -> Path:
    """Return the folder of a pipeline's run metrics."""
    return Path(f"metrics/runs/{pipeline}")


def curves(pipeline: str) -> Path:
    """Return the folder of a pipeline's training curves."""
    return Path(f"plots/curves/{pipeline}")


def tokens(scale: str) -> Path:
    """Return the folder with a scale's train.bin, val.bin and vocab.json."""
    return Path(f"data/tokens/{scale}")


def data_document(dataset: str) -> Path:
    """Return the document of a data set: source, counts, n-gram ladder."""
    return Path(f"metrics/data/{dataset}.json")
