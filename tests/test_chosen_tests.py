"""Which tests a run has: those that reach a change (`--changed`), and those that take long
(`wide`)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from importlib.machinery import SourceFileLoader

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from helpers.repository import changed_tests, recorded_times
from helpers.repository.checkout import ROOT

from cudasync import errors

# A small house. `cs.Op` leads through two files that pass names on.
HOUSE = {
    "cudasync/__init__.py": "if TYPE_CHECKING:\n    from cudasync.engine import Op",
    "cudasync/engine/__init__.py": "from cudasync.engine.op import Op\nimport cudasync.engine.log",
    "cudasync/engine/op.py": "from cudasync.engine import vars",
    "cudasync/engine/vars.py": "",
    "cudasync/engine/log.py": "",
    "cudasync/data/__init__.py": "",
    "tests/helpers/programs.py": "from cudasync.engine import vars",
    "tests/helpers/shapes.py": "",
    "tests/engine/test_direct.py": "import cudasync.engine.log",
    "tests/engine/test_engine_properties.py": "",
    "tests/engine/test_helped.py": "def f():\n    from helpers import programs",
    "tests/engine/test_named.py": "import cudasync as cs\ncs.Op",
    "tests/engine/test_started.py": "run('from cudasync.engine import vars')",
    "tests/ptx/test_file.py": "PTX = 'ptx/kernels/saxpy.ptx'",
    "tests/ptx/test_folder.py": "PTX = ROOT / 'ptx' / 'kernels'",
    "tests/test_page.py": "read('README.md')",
    "tests/test_prose.py": "# README.md says so.",
    "bench/bench_a.py": "",
    "tests/bench/test_a.py": "import bench_a",
    "ptx/kernels/saxpy.ptx": "",
    "README.md": "",
    "pyproject.toml": "",
}


@pytest.fixture
def house(tmp_path):
    for place, text in HOUSE.items():
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("cudasync/engine/log.py", "direct engine_properties"),
        ("cudasync/engine/op.py", "engine_properties named"),
        ("cudasync/engine/vars.py", "engine_properties helped named started"),
        ("cudasync/data/__init__.py", ""),
        ("tests/helpers/programs.py", "helped"),
        ("tests/helpers/shapes.py", ""),
        ("tests/engine/test_direct.py", "direct"),
        ("ptx/kernels/saxpy.ptx", "file folder"),
        ("README.md", "page"),
        ("bench/bench_a.py", "a"),
        ("a file that is gone", ""),
    ],
)
def test_a_change_is_reached_by_imports_names_and_texts(house, changed, tests):
    found = changed_tests.that_reach([changed], house)
    assert [re.search("test_(.*).py", each)[1] for each in found] == tests.split()


def test_every_test_reaches_what_all_of_them_use(house):
    all_tests = sorted(each for each in HOUSE if "/test_" in each)
    for changed in changed_tests.REACH_ALL:
        assert changed_tests.that_reach([changed], house) == all_tests


def test_a_file_that_was_read_before_is_read_again_when_it_changes(house):
    known = {}
    place = "tests/engine/test_direct.py"
    change = ["cudasync/engine/vars.py"]
    assert place not in changed_tests.that_reach(change, house, known)
    # As the kept file has it.
    known = json.loads(json.dumps(known))
    known["tests/helpers/shapes.py"][1] = [["cudasync.engine.vars", None]]
    (house / place).write_text("from helpers import shapes")
    assert place in changed_tests.that_reach(change, house, known)


def test_a_store_reaches_its_servers_and_a_lexer_does_not():
    found = changed_tests.that_reach(["cudasync/kvstore/servers/journal.py"])
    assert "tests/kvstore/test_servers.py" in found
    assert "tests/ptx/test_lexer.py" not in found


def test_changed_refuses_an_unknown_commit_and_files_beside_it():
    for words, says in [(["HEAD~99999"], "HEAD~99999"), (["HEAD", "tests"], "name none")]:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-pno:cacheprovider", "--changed", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
        assert says in done.stderr


def test_the_library_is_not_rewritten_by_pytest():
    """As the tests are, whose failed assertions show their values."""
    assert isinstance(errors.__spec__.loader, SourceFileLoader)
    assert isinstance(__spec__.loader, AssertionRewritingHook)


# By recorded time

FOUND = "a::test_a_planted_bug_is_found"
RECORDED = {"a::t[1]": 9.0, "a::t[2]": 3.0, "a::t[3]": 0.3, "a::u": 30.0, "a::v": 0.3, FOUND: 8.0}


def test_long_cases_are_wide_but_the_quickest_of_a_test():
    assert recorded_times.wide(RECORDED, RECORDED) == {"a::t[1]", "a::t[2]", "a::u"}
    # A case without a record is the quickest.
    wide = recorded_times.wide(RECORDED, [*RECORDED, "a::t[new]", "a::x"])
    assert wide == {"a::t[1]", "a::t[2]", "a::t[3]", "a::u"}


def test_a_plain_run_has_a_few_of_many_short_cases_and_every_planted_bug():
    short = [f"a::w[{n}]" for n in range(30)]
    planted = [f"{FOUND}[{n}]" for n in range(30)]
    wide = recorded_times.wide({}, [*short, *planted])
    assert wide == set(short[5:])
    assert recorded_times.wide({"a::w[9]": 0.2}, short) == {*short[5:]}


def test_every_planted_bug_is_found_in_a_plain_run():
    """No test of a checker is wide as a whole."""
    records = recorded_times.read()
    assert records
    wide = recorded_times.wide(records, records)
    left = {each.partition("[")[0] for each in records.keys() - wide}
    gone = {each.partition("[")[0] for each in wide} - left
    assert gone
    assert not [each for each in gone if recorded_times.CHECKERS.search(each.partition("::")[2])]


@pytest.mark.parametrize("processes", ["-n0", "-n1"])
def test_who_asks_for_wide_tests_gets_them_in_each_process(processes):
    records = recorded_times.read()
    wide = recorded_times.wide(records, records)
    seconds: Counter[str] = Counter()
    for test in wide:
        seconds[test.partition("::")[0]] += records[test]
    shortest = min(sorted(seconds), key=lambda file: seconds[file])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", processes, "-mwide", shortest],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


SPENDING = """
import subprocess, sys

SPEND = "import time\\nwhile time.process_time() < 0.4: pass"

def test_here():
    exec(SPEND.replace("process_time()", f"process_time() - {__import__('time').process_time()}"))

def test_in_a_child():
    subprocess.run([sys.executable, "-c", SPEND], check=True)

def test_quick():
    pass
"""


@pytest.mark.parametrize("processes", ["-n0", "-n1"])
def test_times_are_recorded_with_those_of_started_processes(tmp_path, processes):
    (tmp_path / "test_spending.py").write_text(SPENDING)
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\n"
        "from helpers.repository import recorded_times\n"
        "def pytest_configure(config):\n"
        "    file = Path(__file__).parent / 'times.json'\n"
        "    config.pluginmanager.register(recorded_times.Recorder(file))\n"
    )
    (tmp_path / "times.json").write_text('{"test_spending.py::test_gone": 7, "b.py::test_kept": 8}')
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", processes, "--rootdir", tmp_path, tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        capture_output=True,
        timeout=120,
        check=True,
    )
    times = json.loads((tmp_path / "times.json").read_text())
    assert list(times) == [
        "b.py::test_kept",
        "test_spending.py::test_here",
        "test_spending.py::test_in_a_child",
    ]
