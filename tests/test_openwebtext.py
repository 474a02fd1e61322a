"""OpenWebText from small parquet files: documents, the stage, its memory, and under DVC."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dvc.repo import Repo

from closure import closure
from resablate import bpe, documents, fetch, openwebtext
from resablate.bench import openwebtext as bench
from resablate.errors import UserError
from resablate.openwebtext import File
from resablate.stages import prepare_openwebtext

ROOT = Path(__file__).parent.parent
TEXTS = [f"Document {i}. {'word ' * (i % 7)}é" for i in range(50)]
ODD = ["", "a <|endoftext|> b", "x" * 10**6, "line\n\n\nline"]


def write(path: str, texts: list, rows: int = 7, column: str = "text", kind=None) -> Path:
    """Write a parquet file in row groups of `rows`."""
    table = pa.table({column: pa.array(texts, kind or pa.string())})
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=rows)
    return Path(path)


def file(path: Path, n: int = 50) -> File:
    return File(path, "", n)


def texts(*files: Path, n: int) -> list[str]:
    return [text for _, text in openwebtext.documents([file(path) for path in files], n)]


def use(**changes: object) -> None:
    """Write paper/data.yaml with other values."""
    text = (ROOT / openwebtext.PARAMS).read_text()
    for key, value in changes.items():
        lines = text.splitlines()
        (i,) = (i for i, line in enumerate(lines) if line.strip().startswith(f"{key}:"))
        lines[i] = lines[i].split(":")[0] + f": {value}"
        text = "\n".join(lines) + "\n"
    openwebtext.PARAMS.parent.mkdir(exist_ok=True)
    openwebtext.PARAMS.write_text(text)


# -- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7, 50])
def test_documents_come_in_order_across_row_groups_and_files(root, monkeypatch, rows):
    monkeypatch.setattr(openwebtext, "ROWS", 3)
    a, b = write("a.parquet", TEXTS[:20], rows), write("b.parquet", TEXTS[20:], rows)
    assert texts(a, b, n=50) == TEXTS
    assert texts(a, b, n=21) == TEXTS[:21]
    names = [name for name, _ in openwebtext.documents([file(a), file(b)], 21)]
    assert names[-2:] == ["a/19", "b/0"]


def test_fewer_documents_than_asked_are_counted(root):
    path = write("a.parquet", TEXTS)
    with pytest.raises(UserError, match=r"a\.parquet: 50 documents found, not 51"):
        texts(path, n=51)


def test_only_the_files_that_are_needed_are_used(root):
    for i in range(3):
        write(f"folder/{i}.parquet", TEXTS[10 * i : 10 * i + 10])
    use(source="folder", n_documents=11)
    used = openwebtext.files(openwebtext.load())
    assert [(f.path.name, f.n_documents) for f in used] == [("0.parquet", 10), ("1.parquet", 10)]
    assert used[0].sha256 == fetch.sha256_of(Path("folder/0.parquet").read_bytes())
    use(source="folder", n_documents=31)
    with pytest.raises(UserError, match=r"31 asked for, but 0\.parquet, .* hold 30; add shards or"):
        openwebtext.files(openwebtext.load())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: write("x", TEXTS, column="content"), "has no column `text`; it has content"),
        (lambda: write("x", [b"a"], kind=pa.binary()), "must hold strings, not binary"),
        (lambda: write("x", [*TEXTS, None]), "document 50: null, not a text"),
        (lambda: write("x", pa.array([b"a", b"\xff"]).view(pa.string())), "document 1: not UTF-8"),
        (lambda: Path("x").write_bytes(b"PAR1 no PAR1"), "not a readable parquet file: "),
        (lambda: damage(write("x", TEXTS, rows=50)), "not a readable parquet file: "),
    ],
)
def test_a_bad_file_is_one_line(root, content, message):
    content()
    with pytest.raises(UserError) as error:
        texts(Path("x"), n=51)
    assert str(error.value).startswith("x: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def damage(path: Path) -> None:
    """Overwrite the data behind the first page's header."""
    content = bytearray(path.read_bytes())
    content[40:300] = bytes(260)
    path.write_bytes(content)


@pytest.mark.parametrize("source", ["nowhere", "empty"])
def test_a_source_without_files_is_named(root, source):
    Path("empty").mkdir()
    use(source=source)
    with pytest.raises(UserError, match=f"'{source}': must be hub, a parquet file or a folder"):
        openwebtext.files(openwebtext.load())


# -- the stage -----------------------------------------------------------------------------------


def test_tokens_are_those_of_tiktoken_one_by_one(workspace):
    write("corpus.parquet", [*TEXTS, *ODD, "beyond the last"])
    n = len(TEXTS) + len(ODD)
    use(source="corpus.parquet", n_documents=n, val_fraction=0.3)
    prepare_openwebtext.main()

    folder = Path("data/tokens/gpt124m")
    expected = {"train": [], "val": []}
    sizes = dict.fromkeys(expected, 0)
    gpt2 = bpe.encoding()
    for text in [*TEXTS, *ODD]:
        split = documents.split_of(fetch.sha256_of(text.encode()), 0.3)
        expected[split] += [*gpt2.encode_ordinary(text), 50_256]
        sizes[split] += len(text.encode())
    for split, tokens in expected.items():
        assert np.fromfile(folder / f"{split}.bin", "<u2").tolist() == tokens
    with (folder / "manifest.csv").open(newline="", encoding="utf-8") as rows:
        assert [row["name"] for row in csv.DictReader(rows)] == [f"corpus/{i}" for i in range(n)]
    vocabulary = json.loads((folder / "vocab.json").read_text())
    assert vocabulary["corpus"].startswith(f"Not the pinned OpenWebText: first {n} documents of ")
    assert (vocabulary["kind"], vocabulary["size"]) == ("gpt2", 50_257)
    assert vocabulary["val_tokens"] == len(expected["val"])
    assert vocabulary["val_bytes"] == sizes["val"]
    document = json.loads(Path("metrics/data/openwebtext.json").read_text())
    assert document["source_sha256"] == fetch.sha256_of(Path("corpus.parquet").read_bytes())
    assert document["train_documents"] + document["val_documents"] == n
    assert document["ngram_ladder"].keys() == {"1", "2"}
    assert document["leakage"]["val_documents"] == document["val_documents"]
    assert "13-grams in training" in Path("metrics/data/openwebtext.md").read_text()


def test_pinned_shards_are_called_openwebtext(workspace, monkeypatch):
    path = write("mirror/train-00000-of-00080.parquet", TEXTS)
    shutil.copytree(os.environ[fetch.MIRROR_VARIABLE], "mirror", dirs_exist_ok=True)
    monkeypatch.setenv(fetch.MIRROR_VARIABLE, "mirror")
    size, sha256 = path.stat().st_size, fetch.sha256_of(path.read_bytes())
    use(bytes=size, sha256=sha256, n_documents=40, val_fraction=0.2)
    prepare_openwebtext.main()
    corpus = json.loads(Path("data/tokens/gpt124m/vocab.json").read_text())["corpus"]
    assert corpus == "OpenWebText, first 40 documents"


def test_a_failure_leaves_what_was_there(workspace):
    before = Path("data/tokens/gpt124m/train.bin")
    before.parent.mkdir(parents=True)
    before.write_bytes(b"before")
    write("corpus.parquet", [*TEXTS, None])
    use(source="corpus.parquet", n_documents=51)
    with pytest.raises(UserError, match="document 50: null"):
        prepare_openwebtext.main()
    assert [(p.name, p.read_bytes()) for p in before.parent.iterdir()] == [("train.bin", b"before")]


def test_a_split_without_documents_is_refused(workspace):
    write("corpus.parquet", TEXTS[:3])
    use(source="corpus.parquet", n_documents=3, val_fraction=0.0001)
    with pytest.raises(UserError, match=r"val_fraction: leaves no document for val, of 3"):
        prepare_openwebtext.main()


READ = """\
import sys
from pathlib import Path
from resablate import openwebtext
from resablate.bench import peak_memory_mb
path = Path(sys.argv[1])
n = sum(1 for _ in openwebtext.documents([openwebtext.File(path, "", 0)], int(sys.argv[2])))
print(n, peak_memory_mb())
"""


def test_reading_takes_the_same_memory_for_any_size(root):
    words = np.random.default_rng(0).integers(0, 10**6, 2000)
    peaks = []
    for n in (1000, 5000):  # 14 and 69 MB in one row group, which does not compress away
        path = write(f"{n}.parquet", [" ".join(map(str, words + i)) for i in range(n)], rows=n)
        command = [sys.executable, "-c", READ, str(path), str(n)]
        printed = subprocess.run(
            command, env={"PYTHONPATH": str(ROOT / "src")}, check=True, capture_output=True
        ).stdout.split()
        assert int(printed[0]) == n
        peaks.append(float(printed[1]))
    assert peaks[1] < peaks[0] + 30


@pytest.mark.slow
def test_the_whole_stage_takes_flat_memory(tmp_path):
    peaks = []
    for size in bench.SIZES:
        path = tmp_path / f"{size}.parquet"
        command = [sys.executable, "-m", "resablate.bench.openwebtext"]
        printed = subprocess.run(
            [*command, str(path), str(bench.write(path, size))],
            cwd=ROOT, env={"PYTHONPATH": "src"}, check=True, capture_output=True,
        ).stdout  # fmt: skip
        peaks.append(json.loads(printed)["peak_memory_mb"])
    assert peaks[1] < peaks[0] + 100  # bigrams to sort, up to PASS_TOKENS of them


# -- under DVC -----------------------------------------------------------------------------------


@pytest.fixture
def stage():
    with Repo(str(ROOT)) as repo:
        (found,) = repo.stage.collect("paper/dvc.yaml:prepare_openwebtext")
        return found


@pytest.mark.filterwarnings("ignore:_NoneStep.value:DeprecationWarning")
def test_the_stage_depends_on_exactly_what_it_imports(stage):
    declared = {Path(dep.fs_path) for dep in stage.deps if str(dep.fs_path).endswith(".py")}
    assert declared == closure("resablate.stages.prepare_openwebtext", ROOT / "src")
    assert Path(stage.wdir) == ROOT


def test_the_stage_runs_under_dvc(workspace):
    write("corpus.parquet", TEXTS)
    use(source="corpus.parquet", n_documents=50, val_fraction=0.3)
    for name in ("dvc.yaml", "params.yaml", "studies.yaml"):
        shutil.copy(ROOT / "paper" / name, "paper")
    shutil.copy(ROOT / "requirements-numerics.lock", ".")
    shutil.copytree(ROOT / "src", "src", ignore=shutil.ignore_patterns("__pycache__"))
    repro("init", "--no-scm", "--quiet")
    target = ("repro", "paper/dvc.yaml:prepare_openwebtext")
    assert "Running stage" in repro(*target)
    assert "didn't change" in repro(*target)
    use(source="corpus.parquet", n_documents=40, val_fraction=0.3)
    assert "Running stage" in repro(*target)
    document = json.loads(Path("metrics/data/openwebtext.json").read_text())
    assert document["train_documents"] + document["val_documents"] == 40


def repro(*arguments: str) -> str:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        env=os.environ | {"PATH": path}, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
