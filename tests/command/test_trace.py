"""The trace program: the script runs as under Python, and a trace of its ops is written."""

from __future__ import annotations

import json

import pytest
from helpers.repository.checkout import ROOT
from helpers.repository.fork_server import Done, run_warm

PUSHES = """
import sys
import cudasync as cs
with cs.Engine(workers=1) as engine:
    engine.push(lambda: None, name="work")
print("arguments", sys.argv[1:])
"""


def trace(*words: str) -> Done:
    program = "import sys\nfrom cudasync.command import main\n"
    return run_warm(f"{program}sys.exit(main({['trace', *words]!r}))", 60, PYTHONPATH=str(ROOT))


@pytest.fixture
def traced(tmp_path):
    """The script's exit status, and the names of the ops in the trace; None without a trace."""

    def traced(text, *arguments):
        script, output = tmp_path / "script.py", tmp_path / "out.json"
        script.write_text(text)
        output.unlink(missing_ok=True)
        done = trace("-o", str(output), str(script), *arguments)
        if not output.exists():
            return done, None
        events = json.loads(output.read_text())["traceEvents"]
        return done, [each["name"] for each in events if each["ph"] == "X"]

    return traced


def test_a_script_has_its_arguments_and_stdout_and_its_ops_are_in_the_trace(traced):
    done, names = traced(PUSHES, "a", "-b")
    assert (done.code, done.out) == (0, "arguments ['a', '-b']\n")
    assert names == ["work"]
    assert "critical path" in done.err


def test_a_script_that_fails_keeps_its_status_and_traceback_and_is_traced(traced):
    done, names = traced(PUSHES + "raise SystemExit(7)\n")
    assert (done.code, names) == (7, ["work"])
    done, names = traced(PUSHES + "1 / 0\n")
    assert (done.code, names) == (1, ["work"])
    assert "ZeroDivisionError" in done.err
    assert "command/trace.py" not in done.err


def test_what_can_not_be_run_or_written_is_one_line(tmp_path):
    missing = str(tmp_path / "no.py")
    done = trace(missing)
    assert done.code == 2
    assert done.err == f"cudasync trace: {missing}: there is no such file\n"


def test_the_page_and_the_picture_are_written_when_asked(tmp_path):
    script, out = tmp_path / "script.py", tmp_path / "out.json"
    script.write_text(PUSHES + "import os\nos.chdir('/')\n")
    page, picture = tmp_path / "page.html", tmp_path / "picture.svg"
    files = ["-o", str(out), "--html", str(page), "--plot", str(picture)]
    done = trace(*files, str(script))
    assert done.code == 0, done.err
    assert '"name":"work"' in page.read_text()
    assert "</svg>" in picture.read_text()
    assert out.exists()


@pytest.mark.parametrize(
    ("option", "name", "says"),
    [
        ("--html", "no/page.html", "there is no folder "),
        ("--plot", "no/picture.png", "there is no folder "),
        ("--plot", "picture.docx", "suffix of a picture must be one of"),
    ],
)
def test_what_can_not_be_shown_is_said_before_the_script_runs(tmp_path, option, name, says):
    script = tmp_path / "script.py"
    script.write_text("print('ran')\n")
    done = trace(option, str(tmp_path / name), str(script))
    assert (done.code, done.out) == (2, "")
    assert says in done.err
