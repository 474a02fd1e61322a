"""The DAG says the truth: each stage depends on exactly the code that it runs."""

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from dvc.repo import Repo

from closure import closure
from resablate import dag, paper, paperstudies, params, paths, report

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src"
NUMERICS = "requirements-numerics.lock"
WITHOUT_NUMERICS = {"check", "aggregate", "figures"}  # no tensors, no random numbers
# The stages behind the page's numbers: it prints the hashes of their code.
PRINTED = {"check", "prepare_shakespeare", "prepare_owt", "train", "aggregate"}
PAPER_PRINTED = {"check", "prepare_shakespeare", "prepare_owt", "prepare_openwebtext"} | {
    "paper_check",
    "paper_train",
    "paper_aggregate",
}
STUDY_PRINTED = PRINTED | {"study"}  # and the analyses, which the stage itself imports
DUMP_FILES = """\
import importlib, sys
importlib.import_module(sys.argv[1])
print(*(m.__file__ for m in sys.modules.values() if getattr(m, "__file__", None)), sep="\\n")
"""
# DVC's own use of pygtrie.
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")


@pytest.fixture(scope="module")
def everything():
    """The stages of all pipelines, expanded."""
    with Repo(str(ROOT)) as repo:
        return repo.index.stages


@pytest.fixture
def stages(everything):
    """Those of the root pipeline, in dvc.yaml's order."""
    return [stage for stage in everything if Path(stage.path) == ROOT / "dvc.yaml"]


@pytest.fixture
def paper_stages(everything):
    """Those of paper/dvc.yaml."""
    return [stage for stage in everything if Path(stage.path) == ROOT / "paper/dvc.yaml"]


def paper_module(stage):
    """Return the module of a stage of paper/dvc.yaml: two stages train, and those of studies."""
    name = "train" if base(stage) == "train_124m" else base(stage)
    name = "study" if name.endswith("_10m") else name
    # One that prepares data keeps its name.
    return name if name.startswith("prepare_") else f"paper_{name}"


def base(stage):
    return stage.name.partition("@")[0]


def relative(items):
    """Return the paths of deps or outs, from the root."""
    return {Path(item.fs_path).relative_to(ROOT).as_posix() for item in items}


def require(name):
    """Skip a test of a stage whose module is not there."""
    if not (SRC / f"resablate/stages/{name}.py").is_file():
        pytest.skip(f"no module for a stage {name}")


def test_command_runs_the_module_of_the_same_name(stages):
    for stage in stages:
        command = f"PYTHONPATH=src python -m resablate.stages.{base(stage)}"
        assert re.fullmatch(rf"{re.escape(command)}( .+)?", stage.cmd), stage.addressing
        assert (SRC / f"resablate/stages/{base(stage)}.py").is_file()


def test_each_stage_module_is_run_by_a_stage(everything):
    modules = {path.stem for path in (SRC / "resablate/stages").glob("*.py")} - {"__init__"}
    commands = " ".join(stage.cmd for stage in everything)
    assert modules == set(re.findall(r"-m resablate\.stages\.(\w+)", commands))


def assert_deps_are_the_closure(stage, modules):
    declared = {
        path for path in relative(stage.deps) if path.startswith("src/") and path.endswith(".py")
    }
    files = set().union(*(closure(f"resablate.stages.{module}", SRC) for module in modules))
    needed = {file.relative_to(ROOT).as_posix() for file in files}
    assert declared == needed, f"{stage.addressing}: deps under src/"


def test_code_deps_are_the_import_closure(stages):
    for stage in stages:
        modules = {base(stage), *(PRINTED if base(stage) == "report" else ())}
        assert_deps_are_the_closure(stage, modules)


def test_the_papers_stages_are_its_modules_with_their_closures(paper_stages):
    assert len(paper_stages) >= 3 + 64 + 40 + 96
    for stage in paper_stages:
        module = paper_module(stage)
        command = f"PYTHONPATH=src python -m resablate.stages.{module}"
        assert re.fullmatch(rf"{re.escape(command)}( .+)?", stage.cmd), stage.addressing
        if stage.name.endswith("-1337") or "@" not in stage.name:  # the others' are the same text
            printed = PAPER_PRINTED if module == "paper_report" else ()
            assert_deps_are_the_closure(stage, {module, *printed})
        expected = module.startswith(("paper_train", "paper_study", "paper_report", "prepare_"))
        assert (NUMERICS in relative(stage.deps)) == expected, stage.addressing


def test_the_papers_runs_are_those_of_its_grids_and_studies(paper_stages, monkeypatch):
    monkeypatch.chdir(ROOT)
    cells = paper.load(params.load()).cells()
    expected = {cell.stage: set(map(str, cell.paths("paper"))) for cell in cells}
    declared = paperstudies.load(params.load())
    for name, study in declared.studies.items():
        for arm, seed in product(declared.arms(name), study.seed):
            outs = paths.run(name, study.scale, arm.name, seed)
            expected[f"paper/dvc.yaml:{name}@{arm.name}-{seed}"] = set(map(str, outs))
    found = {s.addressing: relative(s.outs) for s in paper_stages if "@" in s.name}
    assert found == expected
    assert "paper/dvc.yaml:train@gpt10m-residualgpt-attn_only-1337" in found
    # Read without DVC, as `plan` and `offline` do, they are the same.
    read = {cell.address: cell for cell in dag.cells(paper.DVC_FILE)}
    assert read.keys() == found.keys()
    for stage in paper_stages:
        if "@" in stage.name:
            cell = read[stage.addressing]
            command = " ".join(stage.cmd.split())
            assert (cell.cmd, set(cell.outs)) == (command, relative(stage.outs))
            tracked = {
                (Path(dep.fs_path).relative_to(ROOT).as_posix(), key)
                for dep in stage.deps
                for key in getattr(dep, "params", ())
            }
            keys = {key if file == "params.yaml" else f"{file}:{key}" for file, key in tracked}
            assert set(cell.params) == keys
            code = relative(stage.deps) - {file for file, _ in tracked}
            assert set(cell.deps) == code


def test_each_report_depends_on_every_file_of_its_page_and_lies_beside_the_others(everything):
    reports = [stage for stage in everything if stage.name == "report"]
    files = {path.relative_to(ROOT).as_posix() for path in (SRC / "resablate/report").glob("*.*")}
    files = {path for path in files if not path.endswith(".py")}  # those are in the closure
    assert len(files) == 3
    assert all(files <= relative(stage.deps) for stage in reports)
    outs = set().union(*(relative(stage.outs) for stage in reports))
    assert outs == {str(report.path(pipeline)) for pipeline in report.PIPELINES}


def test_the_studies_report_depends_on_all_code_behind_its_numbers(everything):
    stage = next(s for s in everything if s.addressing == "studies/dvc.yaml:report")
    assert stage.cmd == "PYTHONPATH=src python -m resablate.stages.studies_report"
    assert_deps_are_the_closure(stage, {"studies_report", *STUDY_PRINTED})
    assert {"metrics/studies", NUMERICS} <= relative(stage.deps)


@pytest.mark.parametrize("name", ["check", "train"])
def test_static_closure_holds_all_that_is_really_imported(name):
    require(name)
    module = f"resablate.stages.{name}"
    command = (sys.executable, "-P", "-c", DUMP_FILES, module)
    environment = {"PYTHONPATH": str(SRC), "PATH": ""}
    printed = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout
    imported = {Path(line) for line in printed.splitlines() if line.startswith(f"{SRC}/")}
    assert SRC / f"resablate/stages/{name}.py" in imported
    assert imported <= closure(module, SRC)


def test_numeric_stages_depend_on_the_versions_that_decide_bits(stages):
    for stage in stages:
        expected = base(stage) not in WITHOUT_NUMERICS
        assert (NUMERICS in relative(stage.deps)) == expected, stage.addressing


def test_outs_of_runs_are_those_of_paths(stages, monkeypatch):
    require("train")
    monkeypatch.chdir(ROOT)
    grid = params.load().grid
    expected = {"trial": paths.trial()}
    for scale, impl, config, seed in product(grid.scale, grid.impl, grid.config, grid.seed):
        arm = f"{impl}-{config}"
        expected[f"train@{scale}-{arm}-{seed}"] = paths.run("main", scale, arm, seed)
    found = {stage.name: relative(stage.outs) for stage in stages}
    runs = {
        name: outs for name, outs in found.items() if name.partition("@")[0] in ("train", "trial")
    }
    assert runs == {name: set(map(str, outs)) for name, outs in expected.items()}


def test_each_stage_stands_after_those_that_it_needs(stages):
    """So that dvc.yaml's order, which the sweep gives dvc.lock, is the order of execution."""
    made = set()
    own = {path for stage in stages for path in relative(stage.outs)}
    for stage in stages:
        for dep in relative(stage.deps):
            within = {out for out in own if out == dep or out.startswith(f"{dep}/")}
            assert within <= made, f"{stage.addressing}: {dep}"
        made |= relative(stage.outs)


def test_closure_by_hand(tmp_path):
    package = tmp_path / "resablate"
    (package / "stages").mkdir(parents=True)
    sources = {
        "__init__.py": "",
        "stages/__init__.py": "",
        "stages/a.py": "import os\nfrom resablate import b\nfrom resablate.c import value\n",
        "b.py": "def f():\n    import resablate.d\n",
        "c.py": "from resablate.a_name_of_no_module import x\nvalue = 1\n",
        "d.py": "import resablate.stages.a\n",
        "unused.py": "",
    }
    for name, text in sources.items():
        (package / name).write_text(text)
    found = {
        file.relative_to(package).as_posix() for file in closure("resablate.stages.a", tmp_path)
    }
    assert found == sources.keys() - {"unused.py"}
