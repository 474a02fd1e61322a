"""Odd contents of the files that a person edits or that a crash may damage: one line each."""

import datetime
import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from resablate import params, results, snapshot, strict, studies
from resablate.errors import UserError, run_command

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "params.yaml").read_text(encoding="utf-8")
VALUES = YAML(typ="safe", pure=True).load(TEXT)
ODD = (
    None, "", "x", "é\nü", b"x", True, -1, -0.5, 10**9, math.nan, math.inf,
    [], ["a"], {}, {"a": 1}, {1: 2}, {"a"}, datetime.date(2020, 1, 1),
)  # fmt: skip
LONGEST = 350  # characters of an error


def keys(values: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the path of every key, sections included."""
    below = values.items() if isinstance(values, dict) else ()
    return [path, *(key for name, value in below for key in keys(value, (*path, name)))]


def with_value(values: dict, path: tuple[str, ...], value: object) -> Any:
    """Return a copy with another value at a path."""
    *above, last = path
    changed = at = deepcopy(values)
    for name in above:
        at = at[name]
    at[last] = value
    return changed


def test_an_odd_value_of_any_key_is_possible_or_refused_in_one_line():
    refused = 0
    for number, path in enumerate(keys(VALUES)[1:]):
        for value in (ODD[number % len(ODD)], ODD[(number * 7 + 5) % len(ODD)]):
            try:
                params.check(params.Params.model_validate(with_value(VALUES, path, value)))
            except ValidationError as error:
                message = strict.first_line(error)
            except UserError as error:
                message = str(error)
            else:
                continue
            refused += 1
            assert "\n" not in message, (path, value)
            assert len(message) < LONGEST, (path, value)
            assert path[0] in message or path[-1] in message, (path, value, message)
    assert refused > 200


def test_an_odd_value_in_a_study_is_possible_or_refused_in_one_line():
    text = (ROOT / "studies/params.yaml").read_text(encoding="utf-8")
    values, root = YAML(typ="safe", pure=True).load(text), params.load(ROOT / "params.yaml")
    values["studies"] = {"gain": values["studies"]["gain"]}
    refused = 0
    for number, path in enumerate(keys(values)[1:]):
        try:
            changed = with_value(values, path, ODD[number % len(ODD)])
            studies.check(studies.Studies.model_validate(changed), root)
        except ValidationError as error:
            message = strict.first_line(error)
        except UserError as error:
            message = str(error)
        else:
            continue
        refused += 1
        assert "\n" not in message, path
        assert len(message) < LONGEST, path
    assert refused > 100


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "must be a mapping of keys, not NoneType"),
        (b"- a\n", "must be a mapping of keys, not list"),
        (b"just words\n", "must be a mapping of keys, not str"),
        (TEXT.encode("utf-16"), "not UTF-8 at byte 0; save it as UTF-8"),
        ("# caf\xe9\n".encode("latin-1") + TEXT.encode(), "not UTF-8 at byte 5"),
        (TEXT.encode().replace(b"\nseed: 1337", b"\nseed: \0"), "#x0000"),
        (TEXT.encode().replace(b"\nseed: ", b"\nseed:\t"), "line 10: found character '\\t'"),
        (TEXT.encode().replace(b"\nseed: 1337", b"\nseed: *a"), "line 10: found undefined alias"),
        (b"<<<<<<< HEAD\n" + TEXT.encode(), "line 8: expected"),
        (b"a: " + b"[" * 500 + b"]" * 500, "no parameters: maximum recursion depth exceeded"),
        (b"seed: " + b"9" * 5000, "no parameters: Exceeds the limit (4300 digits)"),
        (TEXT.encode().replace(b"1337", b"9" * 400, 1), "9...9"),
        (TEXT.encode().replace(b"1337", b"!!python/object:os.system 1", 1), "tag"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path, content, named):
    path = tmp_path / "params.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        params.load(path)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", ["\r\n", "\ufeff"])
def test_line_ends_and_a_byte_order_mark_of_windows_change_nothing(tmp_path, change):
    path = tmp_path / "params.yaml"
    text = TEXT.replace("\n", "\r\n") if change == "\r\n" else change + TEXT
    path.write_bytes(text.encode())
    assert params.load(path) == params.load(ROOT / "params.yaml")


@pytest.mark.parametrize("key", ["steps", "batch_size"])
@pytest.mark.parametrize("value", [2**31, 2**63, 10**19])
def test_a_size_that_fits_no_machine_is_refused(tmp_path, key, value):
    path = tmp_path / "params.yaml"
    path.write_text(TEXT.replace(f"\n{key}: null", f"\n{key}: {value}"))
    with pytest.raises(UserError, match=rf"{key}: \d+: Input should be less than 2147483648"):
        params.load(path)


@pytest.mark.parametrize("text", ["", "-1", "1.0", "1e3", "٣", " 3", str(2**63), "9" * 50])
def test_a_seed_is_a_whole_number_in_ascii_digits(text):
    with pytest.raises(UserError, match=r"SEED: .* must be a whole number from 0 to"):
        params.seed_of(text)
    assert params.seed_of(str(2**63 - 1)) == 2**63 - 1


@pytest.mark.parametrize("error", [MemoryError("x"), RuntimeError("can't allocate memory: 9")])
def test_out_of_memory_is_one_line_with_what_to_lower(capsys, error):
    def fail():
        raise error

    with pytest.raises(SystemExit):
        run_command(fail)
    advice = "lower batch_size, n_embd or block_size, or free memory"
    assert capsys.readouterr().err == f"error: out of memory: {error}; {advice}\n"


def test_no_file_and_a_folder_say_where_to_run(tmp_path):
    for path in (tmp_path, tmp_path / "params.yaml"):
        with pytest.raises(UserError, match="run from the repository's root"):
            params.load(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0", b"\xff\xfe", b"step\n1\n", b"step,val_loss\n1,x\n", b"step,val_loss\n1,2,3,4\n"],
)
def test_a_damaged_curve_names_the_file_and_the_remedy(tmp_path, content):
    path = tmp_path / "7.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"7\.csv: .*; run it again"):
        results.read_curve(path, "run it again")


@pytest.mark.parametrize("content", [b"\xff", b"stage\na\n", b"stage,seed\na,b,c,d\n"])
def test_a_damaged_table_of_runs_names_the_stage_that_makes_it(tmp_path, content):
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    with pytest.raises(
        UserError, match=r"runs\.csv: not a table of runs .*dvc repro -f -s aggregate"
    ):
        results.read_runs(path)


def test_the_command_that_removes_extra_files_is_safe_to_paste(root):
    odd = root / "metrics/runs/main/a b'; rm -rf c.json"
    odd.parent.mkdir(parents=True)
    odd.write_text("{}")
    with pytest.raises(UserError) as caught:
        results.refuse_extra("main", [])
    assert str(caught.value).endswith("""rm 'metrics/runs/main/a b'"'"'; rm -rf c.json'""")


@pytest.mark.parametrize("name", ["", ":", "HEAD:", ":trial", "x" * 5000, "\udcc3", "HEAD^{tree}"])
def test_an_odd_name_of_a_run_is_one_line(monkeypatch, name):
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError) as caught:
        snapshot.find(name, "trial").lines()
    assert "\n" not in str(caught.value)


def test_a_damaged_metrics_file_is_named(root):
    (root / "metrics").mkdir()
    (root / "metrics/trial.json").write_text('{"status": ')
    with pytest.raises(UserError, match=r"metrics/trial\.json: not JSON"):
        snapshot.Snapshot("trial", None, snapshot.trail_of("trial")).metrics()
