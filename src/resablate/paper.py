"""The pipeline paper/dvc.yaml: its grids, its cells, and where its tables and figures lie.

paper/params.yaml holds one grid for each training stage; all else is in the root's params.yaml.
"""

from pathlib import Path

from resablate.errors import UserError
from resablate.params import Grid, Params
from resablate.results import RunKey, planned
from resablate.strict import Strict, read

PIPELINE = "paper"
DVC_FILE = Path("paper/dvc.yaml")
GRIDS = Path("paper/params.yaml")
SCHEMA = Path("paper/params.schema.json")
RUNS_CSV = Path("metrics/paper/runs.csv")
SUMMARY = Path("metrics/paper/summary.json")
TABLES = Path("metrics/paper/tables")
PLOTS = Path("plots/paper")


class Grids(Strict):
    """paper/params.yaml as a whole: the axes of the stages `train` and `train_124m`."""

    grid: Grid
    grid_124m: Grid

    @property
    def scales(self) -> list[str]:
        """The scales of all grids, in the file's order."""
        return list(dict.fromkeys(scale for _, grid in self for scale in grid.scale))

    def cells(self) -> list["PaperKey"]:
        """Return every cell, the last axis fastest."""
        grids = ((grid.scale, grid.impl, grid.config, grid.seed) for _, grid in self)
        return [PaperKey(*key) for axes in grids for key in planned(*axes)]


class PaperKey(RunKey):
    """A cell of this pipeline."""

    @property
    def stage(self) -> str:
        """The stage that makes the run, as `dvc repro` takes it."""
        # DVC has one grid a stage, and the scales have different seeds.
        group = "train_124m" if self.scale == "gpt124m" else "train"
        return f"{DVC_FILE}:{group}@{self.scale}-{self.arm}-{self.seed}"


def load(declared: Params, path: Path = GRIDS) -> Grids:
    """Read paper/params.yaml and check it against the root's; UserError names the key."""
    grids = read(path, Grids)
    for name, grid in grids:
        for scale in grid.scale:
            if (scale == "gpt124m") != (name == "grid_124m"):
                allowed = "gpt124m" if name == "grid_124m" else "any scale but gpt124m"
                raise UserError(f"{path}: {name}.scale: {scale!r} must be {allowed}")
    for key in grids.cells():
        declared.resolve(*key[:3])
    return grids
