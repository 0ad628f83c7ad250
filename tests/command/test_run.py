"""The run program: a script can not tell it from Python, but for the CUDA driver beneath it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from helpers.house import ROOT

DRIVER = "from cuda.bindings import driver\ncheck = lambda r: r[1:] if not r[0] else 1 / 0\n"


@pytest.fixture
def run(tmp_path):
    """Run a script of these lines; options come before it, arguments after."""

    def run(text, *arguments, options=()):
        script = tmp_path / "script.py"
        script.write_text(text)
        command = [sys.executable, "-m", "cudasync", "run", *options, str(script), *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    return run


def test_a_script_of_raw_driver_calls_runs(run):
    done = run(
        DRIVER + "check(driver.cuInit(0))\n"
        "print(check(driver.cuDeviceGetCount()), driver.cuDeviceGetName(64, 0)[1])\n",
        options=["--devices", "3"],
    )
    assert done.stderr == ""
    assert done.stdout.startswith("(3,)")
    assert done.returncode == 0


def test_it_sees_its_own_arguments_name_and_folder(run, tmp_path):
    (tmp_path / "beside.py").write_text("word = 'found'\n")
    done = run(
        "import sys, beside\nprint(__name__, __file__, sys.argv, beside.word)\n",
        "--devices", "-x", "--help",
    )  # fmt: skip
    script = str(tmp_path / "script.py")
    assert done.stderr == ""
    assert done.stdout == f"__main__ {script} {[script, '--devices', '-x', '--help']} found\n"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("pass", 0),
        ("import sys; sys.exit(3)", 3),
        ("raise SystemExit", 0),
        ("import sys; sys.exit('no')", 1),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_its_exit_status_passes_through(run, line, status):
    assert run(line).returncode == status


def test_its_traceback_starts_in_the_script(run, tmp_path):
    done = run("def f():\n    return 1 / 0\n\nf()\n")
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{tmp_path / "script.py"}", line 4, in <module>'
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_an_error_of_ours_in_the_script_has_its_traceback_too(run):
    done = run("import cudasync\ncudasync.Module.from_ptx('.version')\n")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert "PtxError" in done.stderr or "CudaError" in done.stderr


def test_a_script_that_does_not_compile_says_where(run):
    done = run("x = (\n")
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
    assert "frozen" not in done.stderr


def test_a_missing_script_is_one_line(tmp_path):
    command = [sys.executable, "-m", "cudasync", "run", str(tmp_path / "nosuch.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == f"cudasync run: {tmp_path / 'nosuch.py'}: there is no such file\n"


def test_an_unknown_scheduler_is_one_line(run):
    done = run("pass", options=["--scheduler", "nosuch"])
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nosuch" in done.stderr
