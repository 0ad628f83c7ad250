"""The last line of a red test runs its program again, and programs that failed once run for ever.

Each file of tests/schedules holds one program that was hard for an engine, and says why. To add
one, save the line that the red test printed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.engine_programs.program_text import from_text, to_text
from helpers.engine_programs.replay import judge, main
from helpers.engine_programs.strategies import programs, settings
from helpers.repository.checkout import ROOT
from hypothesis import given

SCHEDULES = sorted((ROOT / "tests" / "schedules").glob("*.json"))
# The bug shows in each program that counts, in any order of the threads.
BUG = "an op runs twice"
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    "HYPOTHESIS_PROFILE": "search",
}
# The start of a process that plants BUG before anything else runs.
PLANTED = f"from helpers.engine_programs.planted_bugs import plant\nplant({BUG!r})\n"


def run_python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        # Beside other work the run takes minutes. Only a hanging run exceeds this limit.
        timeout=600,
        check=False,
    )


def marks(path: Path) -> tuple[pytest.MarkDecorator, ...]:
    loses_a_device = "wild" in json.loads(path.read_text())["program"]
    return (pytest.mark.loses_device,) if loses_a_device else ()


@pytest.mark.parametrize(
    "path", [pytest.param(each, id=each.stem, marks=marks(each)) for each in SCHEDULES]
)
def test_what_was_hard_once_is_right(path):
    schedule = json.loads(path.read_text())
    assert schedule["why"]
    program, setting = from_text(schedule["program"])
    for time in range(schedule.get("times", 5)):
        assert judge(program, setting, trace=time % 2 == 1) == []


@given(programs(fails=True, threads=3), settings())
def test_the_text_of_a_program_is_all_of_it(program, setting):
    assert from_text(to_text(program, setting)) == (program, setting)


@pytest.mark.parametrize("text", ["jump d0[0:4]", "mix d0[0:4", "mix d0[0:4] d0[4:8] x"])
def test_what_is_no_program_is_refused(text):
    with pytest.raises(ValueError, match=r"step|invalid literal"):
        from_text("d=0 h=1 t=1: " + text)


def test_a_replay_without_a_difference_says_so(capsys):
    assert main(["d=0 h=1 t=1: set d0[0:4] 7; read d0[0:6]", "--times", "2"]) == 0
    assert capsys.readouterr().out == "2 runs, no difference\n"


@pytest.mark.loses_device
def test_a_replay_of_a_fault_judges_it_as_one(capsys):
    assert main(["d=0,1 h=1 t=1: wild d0[0:4]; set d1[0:4] 7; fetch d1[0:6]", "--times", "1"]) == 0
    assert capsys.readouterr().out == "1 runs, no difference\n"


def test_a_red_test_ends_with_a_line_that_fails_again_in_a_fresh_process_twice(tmp_path):
    """Each process plants the bug, and is otherwise unchanged."""
    central = "tests/engine/test_engine_properties.py::test_any_program_gives_the_serial_result"
    red = run_python(
        PLANTED + "import sys, pytest\nsys.exit(pytest.main(sys.argv[1:]))",
        *("-q", "--hypothesis-seed=2", "-p", "no:cacheprovider", f"--basetemp={tmp_path}", central),
        # An installed cudasync is a plugin. It is loaded before pytest could rewrite its asserts.
        *("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"),
    )
    assert red.returncode == 1, red.stdout + red.stderr
    lines = [line for line in red.stdout.splitlines() if line.startswith("replay: ")]
    assert lines, red.stdout + red.stderr
    words = shlex.split(lines[-1].removeprefix("replay: "))
    assert words[-4:-1] == ["python", "-m", "helpers.engine_programs.replay"]
    again = [
        run_python(
            PLANTED + "import sys\n"
            "from helpers.engine_programs.replay import judge, main\n"
            "sys.exit(main())",
            # The failing order may be rare.
            *(words[-1], "--times", "2000"),
        )
        for _ in range(2)
    ]
    for each in again:
        assert each.returncode == 1, each.stdout + each.stderr + red.stdout
        assert re.match(r"run \d+ differs:\n", each.stdout)
