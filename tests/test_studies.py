"""The studies, and the paper's: arms, errors, and what each training stage declares."""

import re
from pathlib import Path

import pytest
from dvc.repo import Repo

from closure import closure
from resablate import paper, paperstudies, params, paths, studies
from resablate.errors import UserError
from resablate.stages import paper_study
from resablate.stages import study as stage_module

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "studies/params.yaml").read_text(encoding="utf-8")
SMALL = """\
studies:
  gain:
    scale: tiny
    impl: residualgpt
    config: attn_only
    changes: {eval_interval: 25}
    axes: {config: [full, ffn_only], gain: [one, half]}
    seed: [1, 2]
differences:
  one: {}
  half: {gain: 0.5, eval_interval: 10}
"""
# DVC's own use of pygtrie.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")


@pytest.fixture(scope="module")
def root():
    return params.load(ROOT / "params.yaml")


def load(folder: Path, old: str = "", new: str = "", text: str = SMALL) -> studies.Studies:
    """Load a text with one replacement."""
    assert old in text
    path = folder / "params.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return studies.load(path)


def test_arms_are_levels_joined_and_changes_in_order(tmp_path, root):
    declared = load(tmp_path)
    arms = {arm.name: arm for arm in declared.arms("gain")}
    assert list(arms) == ["full-one", "full-half", "ffn_only-one", "ffn_only-half"]
    half = arms["ffn_only-half"]
    assert half.levels == {"config": "ffn_only", "gain": "half"}
    assert half.changes == {"gain": 0.5, "eval_interval": 10}
    run = declared.resolve(root, "gain", half)
    base = root.resolve("tiny", "residualgpt", "ffn_only")
    assert run == base.model_copy(update={"gain": 0.5, "eval_interval": 10})
    assert declared.resolve(root, "gain", arms["full-one"]).eval_interval == 25
    assert declared.arm("gain", ["ffn_only", "half"]) == half


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("seed: [1, 2]", "seed: [1, 1]", ["studies.gain.seed", "[1, 1]", "none twice"]),
        ("seed: [1, 2]", "seed: []", ["studies.gain.seed"]),
        ("[one, half]", "[one, one]", ["studies.gain.gain", "none twice"]),
        ("gain: 0.5", "gian: 0.5", ["differences.half.gian", "unknown key"]),
        ("gain: 0.5", "gain: 0", ["differences.half.gain", "0", "greater than 0"]),
        ("    seed:", "    seeds:", ["studies.gain", "seed"]),
    ],
)
def test_mistakes_are_one_line_that_names_the_key(tmp_path, old, new, named):
    with pytest.raises(UserError) as caught:
        load(tmp_path, old, new)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in named), message


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("[one, half]", "[one, third]", ["differences", "lacks 'third'"]),
        ("[full, ffn_only]", "[full, ffn]", ["configs has no 'ffn'", "ffn_only"]),
        ("scale: tiny", "scale: huge", ["scales has no 'huge'"]),
        ("gain: 0.5", "n_embd: 97", ["differences.half.n_embd", "97", "multiple of n_head"]),
        (
            "{eval_interval: 25}",
            "{warmup_steps: 900}",
            ["studies.gain.changes.warmup_steps", "900"],
        ),
    ],
)
def test_impossible_arms_are_named(tmp_path, root, old, new, named):
    declared = load(tmp_path, old, new)
    with pytest.raises(UserError) as caught:
        studies.check(declared, root)
    assert all(word in str(caught.value) for word in named), str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "STUDY LEVEL... SEED"),
        (["gain", "full", "seven"], "SEED: .seven. must be"),
        (["gian", "full", "run_2", "7"], "studies has no 'gian'"),
        (["gain", "full", "run_2", "7"], "config of attn_only, ffn_only"),
        (["gain", "attn_only", "7"], "gain has no arm attn_only"),
    ],
)
def test_stage_names_what_it_takes(monkeypatch, arguments, named):
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError, match=named):
        stage_module.main(arguments)


# -- the committed files ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everything():
    """The stages of all pipelines, expanded."""
    with Repo(str(ROOT)) as repo:
        return repo.index.stages


# The arms' file, the pipeline that trains them, and the module that its stages run.
@pytest.fixture(
    scope="module",
    params=[
        ("studies/params.yaml", "studies/dvc.yaml", "study"),
        ("paper/studies.yaml", "paper/dvc.yaml", "paper_study"),
    ],
    ids=["studies", "paper"],
)
def place(request):
    return request.param


@pytest.fixture(scope="module")
def declared(place):
    return studies.load(ROOT / place[0])


@pytest.fixture(scope="module")
def training(place, everything):
    """The training stages of the studies by study."""
    found = {}
    for stage in everything:
        if Path(stage.path) == ROOT / place[1] and f"stages.{place[2]} " in stage.cmd:
            found.setdefault(stage.name.partition("@")[0], []).append(stage)
    return found


def relative(items):
    return {Path(item.fs_path).relative_to(ROOT).as_posix() for item in items}


def test_every_arm_of_every_study_is_possible(declared, root):
    studies.check(declared, root)
    used = {
        level for study in declared.studies.values() for of in study.axes.values() for level in of
    }
    assert set(declared.differences) <= used  # no difference that nothing tries


def test_stages_are_the_declared_runs(place, declared, training):
    assert training.keys() == declared.studies.keys()
    for name, study in declared.studies.items():
        expected = {}
        for arm in declared.arms(name):
            for seed in study.seed:
                outs = set(map(str, paths.run(name, study.scale, arm.name, seed)))
                levels = " ".join(arm.levels.values())
                command = f"python -m resablate.stages.{place[2]} {name} {levels} {seed}"
                expected[f"{name}@{arm.name}-{seed}"] = (f"PYTHONPATH=src {command}", outs)
        found = {
            stage.name: (" ".join(stage.cmd.split()), relative(stage.outs))
            for stage in training[name]
        }
        assert found == expected


def test_stages_depend_on_their_code_tokens_and_parameters(place, declared, training):
    files = closure(f"resablate.stages.{place[2]}", ROOT / "src")
    code = {file.relative_to(ROOT).as_posix() for file in files}
    for name, stages in training.items():
        study = declared.study(name)
        arms = {arm.name: arm for arm in declared.arms(name)}
        for stage in stages:
            arm = arms[re.fullmatch(rf"{name}@(.*)-\d+", stage.name)[1]]
            scale, impl, config = study.cell(arm.levels)
            files = relative(stage.deps) - {"params.yaml", place[0]}
            assert files == code | {f"data/tokens/{scale}", "requirements-numerics.lock"}
            read = {key for dep in stage.deps for key in getattr(dep, "params", [])}
            own = [level for axis, level in arm.levels.items() if axis not in studies.ROOT_AXES]
            assert read == {
                "base", f"scales.{scale}", f"impls.{impl}", f"configs.{config}",
                f"studies.{name}.changes", *(f"differences.{level}" for level in own),
            }  # fmt: skip


def test_no_arm_of_the_papers_studies_is_a_cell_of_its_grids_or_another_arm(root):
    declared = paperstudies.load(root, ROOT / paperstudies.FILE)
    cells = paper.load(root, ROOT / paper.GRIDS).cells()
    grid = {root.resolve(*cell[:3]).model_dump_json() for cell in cells}
    arms = [
        declared.resolve(root, name, arm).model_dump_json()
        for name in declared.studies
        for arm in declared.arms(name)
    ]
    assert len({*arms, *grid}) == len(arms) + len(grid)
    # Their folders are not those of the studies at `tiny`, which their analyses depend on.
    assert not declared.studies.keys() & studies.load(ROOT / studies.FILE).studies.keys()


def test_mistakes_in_the_papers_studies_name_their_file(tmp_path, root, monkeypatch):
    path = tmp_path / "params.yaml"
    path.write_text(SMALL.replace("[one, half]", "[one, third]"), encoding="utf-8")
    with pytest.raises(UserError, match=rf"^{path}: differences: lacks 'third'"):
        paperstudies.load(root, path)
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError, match=r"^paper/studies.yaml: studies has no 'gain'"):
        paper_study.main(["gain", "run_4", "7"])
    with pytest.raises(UserError, match="config of full, attn_only, ffn_only, no_res; mixer of"):
        paper_study.main(["mixer_10m", "conv", "7"])
    with pytest.raises(UserError, match="not nothing"):
        paper_study.main([])
