"""The commands: help with examples, mistakes in one line, any terminal, completion."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from resablate import commandline
from resablate.__main__ import COMMANDS, main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run Python in the repository's root."""
    variables = os.environ | {"PYTHONPATH": str(ROOT / "src")} | environment
    command = (sys.executable, *arguments)
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, check=False)


def refused(capsys, *arguments: str) -> str:
    """Return the one line in which a command refuses its arguments."""
    with pytest.raises(SystemExit) as end:
        commandline.run_command(main, list(arguments), status=2)
    printed = capsys.readouterr()
    assert (end.value.code, printed.out) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", printed.err), printed.err
    return printed.err


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_are_understood(capsys, name):
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    shown = capsys.readouterr().out
    assert end.value.code == 0
    assert f"usage: python -m resablate {name}" in shown
    assert re.search(rf"(?m)^ +(source <\()?python -m resablate[. ]{name}", shown)


def test_all_commands_are_listed_in_help_and_readme(capsys):
    main([])
    shown = capsys.readouterr().out
    for name, text in COMMANDS.items():
        assert f"  {name:12}{text}\n" in shown
        assert re.search(rf"python -m resablate[. ]{name}\b|make {name}\b", README), name


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["frob"], "invalid choice: 'frob' (choose from"),
        (["--frob"], "see python -m resablate --help"),
        (["diverge"], "required: A, B; see python -m resablate diverge --help"),
        (["diverge", "a", "b", "c"], "unrecognized arguments: c"),
        (["sweep", "-j", "0"], "'0': must be a whole number of at least 1"),
        (["sweep", "-j", "-3"], "'-3': must be a whole number"),
        (["sweep", "-j", "1.5"], "'1.5': must be a whole number"),
        (["sweep", "-j", "٣"], "'٣': must be a whole number"),
        (["sweep", "-j"], "expected one argument"),
        (["bench", "stepps"], "bench has no stepps; it has steps,"),
        (["completion", "fish"], "invalid choice: 'fish' (choose from"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_is_allowed(capsys, arguments, named):
    assert named in refused(capsys, *arguments)


def test_the_short_way_to_start_a_module_is_as_clear():
    for module in ("sweep", "bench"):
        done = run("-m", f"resablate.{module}", "--frob")
        assert done.returncode == 1
        assert done.stderr.count(b"\n") == 1
        assert b"--frob; see python -m resablate." + module.encode() in done.stderr


def test_a_terminal_without_utf_8_shows_what_it_can():
    code = "from resablate import commandline as c; c.run_command(print, '2 \\xd7 3, \\u2014')"
    done = run("-c", code, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.stdout == b"2 ? 3, ?\n"
    assert done.stderr == b""


def test_a_reader_that_has_had_enough_ends_the_command_quietly():
    code = "from resablate.commandline import run_command as r; r(lambda: print('x' * 10_000_000))"
    with subprocess.Popen(
        (sys.executable, "-c", code),
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_completion_completes_commands_and_options(tmp_path):
    if not (bash := shutil.which("bash")):
        pytest.skip("needs bash")
    done = run("-m", "resablate", "completion")
    assert (done.returncode, done.stderr) == (0, b"")
    (tmp_path / "code").write_bytes(done.stdout)
    script = """\
source code
complete() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_resablate; echo ${COMPREPLY[@]}; }
complete resablate di
complete resablate sweep --p
"""
    shown = subprocess.run(
        (bash, "--norc", "-c", script), cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert shown == "diverge\n--pipeline\n"
