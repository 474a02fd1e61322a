"""A repository with the paper's pipeline at a toy size: two cells, toy tokens."""

import shutil

from ruamel.yaml import YAML

from toy import ROOT
from toys import toy_tokens

SMALL = {
    "n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 8, "batch_size": 2, "steps": 6,
    "warmup_steps": 2, "eval_interval": 3, "n_eval_batches": 1, "device": "cpu", "threads": 1,
}  # fmt: skip
SEEDS = (7, 8)
CELLS = [f"paper/dvc.yaml:train@gpt10m-residualgpt-full-{seed}" for seed in SEEDS]


def change(path, **values):
    """Set keys of a YAML file, `a__b=1` the key b of a."""
    yaml = YAML()
    content = yaml.load(path.read_text())
    for key, value in values.items():
        *above, last = key.split("__")
        place = content
        for part in above:
            place = place[part]
        place[last] = value
    with path.open("w") as file:
        yaml.dump(content, file)


def create(root):
    """Write the repository's code and pipelines with a gpt10m of toy size, and toy tokens."""
    root.mkdir(parents=True)
    for name in ("src", "paper"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("params.yaml", "dvc.yaml", "requirements-numerics.lock", ".dvcignore"):
        shutil.copy(ROOT / name, root)
    (root / "paper/dvc.lock").unlink(missing_ok=True)
    sizes = {f"scales__gpt10m__{key}": value for key, value in SMALL.items()}
    change(root / "params.yaml", **sizes)
    grid = {"impl": ["residualgpt"], "config": ["full"], "seed": list(SEEDS)}
    change(root / "paper/params.yaml", **{f"grid__{axis}": of for axis, of in grid.items()})
    warm = {f"differences__{name}__warmup_steps": 2 for name in ("warm", "warm_cosine")}
    change(root / "paper/studies.yaml", **warm)
    toy_tokens(root / "data/tokens/gpt10m")
    (root / "data/tokens/gpt10m/.gitignore").write_text("")  # of DVC's: no part of the hash
