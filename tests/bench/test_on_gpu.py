"""The run on a GPU: a dry run of every part, planted failures in its table, and what it leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import compare
import on_gpu
import pytest
from helpers.repository.checkout import ROOT

from bench.hardware import device, reading
from bench.hardware.parts import PARTS, Part
from bench.hardware.reading import COUNTED, PROGRAM, TESTS
from bench.hardware.running import Setting, Task

SOURCE = ("cudasync", "ptx", "tests", "bench", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the source tree, without git."""
    root = tmp_path_factory.mktemp("source")
    leftovers = shutil.ignore_patterns("__pycache__", ".*")
    for name in SOURCE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=leftovers)
        else:
            shutil.copy2(ROOT / name, root / name)
    return root


def files_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


FIRST, *OTHERS = (part.name for part in PARTS)


# A plain run takes only the first part.
@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", [[FIRST], OTHERS], ids=["first part", "other parts"])
def test_every_part_runs_dry_and_writes_into_its_own_folder_alone(names, source, tmp_path, capsys):
    folders = {each: tmp_path / each for each in ("home", "temporary", "out")}
    for folder in folders.values():
        folder.mkdir()
    before = files_in(source)
    kept = folders["out"] / "dry.json"
    command = ["bench/on_gpu.py", "--dry-run", "--minutes", "60", "--only", *names]
    done = subprocess.run(
        [sys.executable, *command, "--json", str(kept)],
        cwd=source,
        env={
            **{name: value for name, value in os.environ.items() if "PYCACHE" not in name},
            "HOME": str(folders["home"]),
            "TMPDIR": str(folders["temporary"]),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3000,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert files_in(source) == before
    assert files_in(folders["home"]) == files_in(folders["temporary"]) == set()
    assert files_in(folders["out"]) == {"dry.json"}
    found = json.loads(kept.read_text())
    assert [part["name"] for part in found["parts"]] == names
    for part in found["parts"]:
        assert part["is_over"]
        assert sum(each["passed"] for each in part["tasks"]) > 0
        for each in part["tasks"]:
            assert each["state"] != reading.LEFT_OUT or each["why"].startswith("needs "), each
    assert (found["commit"], found["dry_run"]) == (None, True)
    # The same tables once more, from the file.
    assert compare.main(["--tables", str(kept)]) == 0
    told = capsys.readouterr().out
    assert reading.table(found["parts"]) in told
    assert ("| figure |" in told) == (FIRST in names)
    assert all(f"| {name} |" in told for name in names)


def program(*lines):
    return ("-c", "\n".join(lines))


PASSES = Task("passes", program("print('fine')"), PROGRAM)
FAILS = Task("fails", program("print(*range(60), sep=chr(10))", "raise SystemExit(3)"), PROGRAM)
HANGS = Task("hangs", program("import threading", "threading.Event().wait()"), PROGRAM, 0.2)
KILLED = Task("killed", program("import os", "os.kill(os.getpid(), 9)"), COUNTED)
LACKS = Task("lacks", program("1 / 0"), PROGRAM, needs=("no_such_module",))


@pytest.fixture(scope="module")
def found_once(tmp_path_factory):
    """The answer of a process that uses the software GPU: it is the same for all runs."""
    scratch = tmp_path_factory.mktemp("scratch")
    return device.ask(Setting(scratch, is_dry=True, processes=1, patience=on_gpu.DRY_PATIENCE))


@pytest.fixture
def known(found_once, monkeypatch):
    monkeypatch.setattr(device, "ask", lambda setting: found_once)


def planted(name, *tasks):
    return Part(name, 1.0, lambda setting: list(tasks))


def run(kept, *found, options=()):
    """Run these parts; the exit status, and what the file has."""
    status = on_gpu.main(["--dry-run", "--json", str(kept), *options], found)
    return status, json.loads(kept.read_text())


def outcomes(found):
    return {each["task"]: each for part in found["parts"] for each in part["tasks"]}


def test_planted_failures_are_in_the_table_with_their_last_lines_and_the_line_that_repeats_them(
    known, tmp_path, capsys
):
    some = planted("some", PASSES, FAILS, HANGS, KILLED, LACKS)
    broken = Part("broken", 1.0, lambda setting: 1 / 0)
    status, found = run(tmp_path / "run.json", some, broken, planted("last", PASSES))
    assert status == 1
    told = outcomes(found)
    assert told["passes"]["state"] == reading.PASSED
    assert told["lacks"]["why"] == "needs no_such_module"
    assert told["fails"]["why"] == "ended with 3"
    assert told["fails"]["tail"] == [str(number) for number in range(20, 60)]
    assert told["hangs"]["why"].startswith("still running after ")
    assert told["killed"]["why"] == "ended by signal 9, and left no result"
    printed = capsys.readouterr().out
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    assert [row[:4] for row in rows[1:]] == [
        ["| some", "1", "3", "1 needs no_such_module"],
        ["| broken", "0", "1", ""],
        ["| last", "1", "0", ""],
    ]
    assert "FAILED broken: its tasks are not known: ZeroDivisionError" in printed
    for name in ("fails", "hangs", "killed"):
        assert f"FAILED {name}: {told[name]['why']}" in printed
        assert f"  again: {told[name]['repeat']}" in printed
        assert told[name]["repeat"].startswith("PYTHONPATH=.:tests CUDASYNC_DEVICE=soft python -c")


def test_the_processes_of_a_task_end_with_it(known, tmp_path):
    """Its child has begun a session of its own, as fork servers and ranks do."""
    number = tmp_path / "number"
    leaves = Task(
        "leaves",
        program(
            "import pathlib, subprocess, sys",
            "words = [sys.executable, '-c', 'import threading; threading.Event().wait()']",
            "made = subprocess.Popen(words, start_new_session=True)",
            f"pathlib.Path({str(number)!r}).write_text(str(made.pid))",
        ),
    )
    assert run(tmp_path / "run.json", planted("some", leaves))[0] == 0
    assert is_over(int(number.read_text()))


def is_over(number):
    """Whether a process has ended; nobody may have waited for it."""
    try:
        stat = Path(f"/proc/{number}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def test_a_task_finds_no_setting_of_the_user_and_keeps_nothing_elsewhere(
    known, tmp_path, monkeypatch
):
    monkeypatch.setenv("CUDASYNC_ENGINE", "serial")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--nothing-of-the-kind")
    kept = tmp_path / "environment"
    shows = Task(
        "shows",
        program(
            "import json, os, pathlib",
            f"pathlib.Path({str(kept)!r}).write_text(json.dumps(dict(os.environ)))",
        ),
    )
    assert run(tmp_path / "out" / "run.json", planted("some", shows))[0] == 0
    found = json.loads(kept.read_text())
    assert not {"CUDASYNC_ENGINE", "PYTEST_ADDOPTS", "CI"} & set(found)
    assert found["PYTHONPATH"] == f"{ROOT}:{ROOT / 'tests'}"
    for name in (
        *("CUDASYNC_SOFTGPU_CACHE", "XDG_CACHE_HOME", "PYTHONPYCACHEPREFIX", "TMPDIR", "HOME"),
        *("HYPOTHESIS_STORAGE_DIRECTORY", "CUDA_CACHE_PATH", "MPLCONFIGDIR"),
    ):
        assert Path(found[name]).is_relative_to(tmp_path / "out"), name
    assert files_in(tmp_path / "out") == {"run.json"}


def test_resume_leaves_out_what_passed_of_the_same_source_and_runs_the_rest(
    known, tmp_path, monkeypatch, capsys
):
    def counts(name, status):
        text = f"open({str(tmp_path / name)!r}, 'a').write('x')"
        return Task(name, program(text, f"raise SystemExit({status})"))

    def times(name):
        return len((tmp_path / name).read_text())

    monkeypatch.setattr(device, "source", lambda: "one")
    kept = tmp_path / "run.json"
    assert run(kept, planted("some", counts("good", 0), counts("bad", 1)))[0] == 1
    first = outcomes(json.loads(kept.read_text()))
    again = planted("some", counts("good", 0), counts("bad", 0))
    status, found = run(tmp_path / "more.json", again, options=["--resume", str(kept)])
    assert status == 0
    assert (times("good"), times("bad")) == (1, 2)
    assert outcomes(found)["good"] == first["good"]

    monkeypatch.setattr(device, "source", lambda: "another")
    assert run(tmp_path / "other.json", again, options=["--resume", str(kept)])[0] == 0
    assert (times("good"), times("bad")) == (2, 3)
    assert "is of another source" in capsys.readouterr().out


def test_a_part_that_is_out_of_time_leaves_the_rest_out_and_says_so(known, tmp_path):
    late = HANGS.__class__("late", HANGS.command, PROGRAM, 3000)
    status, found = run(
        tmp_path / "run.json", planted("some", late, PASSES), options=["--minutes", "0.06"]
    )
    told = outcomes(found)
    assert status == 0
    assert [each["state"] for each in told.values()] == [reading.LEFT_OUT] * 2
    assert told["passes"]["why"] == "no time"
    assert told["late"]["why"].startswith("no time")


def test_ctrl_c_ends_the_processes_keeps_the_file_and_prints_the_table_so_far(tmp_path):
    kept, begun, number = (tmp_path / name for name in ("run.json", "begun", "number"))
    os.mkfifo(begun)
    # What ends it comes while the second task runs; the third never begins.
    text = f"""
import os, sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "bench")!r}]
import on_gpu
from bench.hardware.parts import Part
from bench.hardware.running import Setting, Task
waits = '''
import os, pathlib, threading
pathlib.Path({str(number)!r}).write_text(str(os.getpid()))
pathlib.Path({str(begun)!r}).write_text("begun")
threading.Event().wait()
'''
tasks = [Task("good", ("-c", "")), Task("waits", ("-c", waits), deadline_s=3000),
         Task("never", ("-c", ""))]
some = Part("some", 1.0, lambda setting: tasks)
raise SystemExit(on_gpu.main(["--dry-run", "--json", {str(kept)!r}, "--minutes", "60"], [some]))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        # Blocks until the task opens the other end.
        assert begun.read_text() == "begun"
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == on_gpu.INTERRUPTED, printed
    assert is_over(int(number.read_text()))
    found = json.loads(kept.read_text())
    assert list(outcomes(found)) == ["good"]
    assert "| some (interrupted) | 1 | 0 |" in printed
    assert files_in(tmp_path) == {"run.json", "number"}


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert on_gpu.main(["--json", str(tmp_path / "run.json")]) == 2
    told = capsys.readouterr().err
    assert "no GPU can be used" in told
    assert "--dry-run" in told
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize(
    "options",
    [[], ["--only", "nothing"], ["--minutes", "0"], ["--minutes", "soon"], ["--json"]],
)
def test_a_wrong_option_is_a_usage_line(options, tmp_path, capsys):
    kept = [] if "--json" in options or not options else ["--json", str(tmp_path / "x.json")]
    with pytest.raises(SystemExit) as left:
        on_gpu.main([*options, *kept])
    assert left.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{}", '{"parts": 3}'])
def test_a_file_that_is_no_run_cannot_be_resumed(text, tmp_path, capsys):
    (tmp_path / "kept.json").write_text(text)
    options = ["--resume", str(tmp_path / "kept.json"), "--json", str(tmp_path / "x.json")]
    assert on_gpu.main(options) == 2
    assert "not a run of on_gpu" in capsys.readouterr().err


def test_a_write_that_fails_in_the_middle_leaves_the_last_file(tmp_path, monkeypatch):
    made = on_gpu.Run(tmp_path / "run.json", {"gpu": "planted"}, on_gpu.passed_in(None))
    made.write()
    before = (tmp_path / "run.json").read_text()

    def fails(told, file, **options):
        file.write('{"gpu": ')
        raise OSError("planted")

    monkeypatch.setattr(json, "dump", fails)
    with pytest.raises(OSError, match="planted"):
        made.write()
    assert (tmp_path / "run.json").read_text() == before


TEST_FILE = """
import pytest
def test_good(): pass
def test_bad(): assert 1 == 2
@pytest.mark.xfail(strict=True)
def test_known(): assert False
@pytest.mark.skip(reason="no such device")
def test_absent(): pass
@pytest.fixture
def broken(): raise OSError
def test_broken(broken): pass
"""


def test_tests_are_counted_and_those_that_failed_are_named(known, tmp_path):
    (tmp_path / "test_planted.py").write_text(TEST_FILE)
    (tmp_path / "test_unreadable.py").write_text("1 / 0")
    options = ("-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:cacheprovider")
    tasks = [
        Task(name, ("-m", "pytest", str(tmp_path / name), *options, "--junit-xml={result}"), TESTS)
        for name in ("test_planted.py", "test_unreadable.py")
    ]
    status, found = run(tmp_path / "run.json", planted("some", *tasks))
    assert status == 1
    one, other = outcomes(found).values()
    # A known failure is as it should be.
    assert (one["passed"], one["failed"], one["left_out"]) == (2, 2, {"no such device": 1})
    assert one["failures"] == ["test_planted.py::test_bad", "test_planted.py::test_broken"]
    assert one["repeat"].endswith("pytest test_planted.py::test_bad test_planted.py::test_broken")
    assert (other["failed"], other["state"]) == (1, reading.FAILED)


CASES = """
import os, threading
from bench.hardware import cases
NAMES = ["good", "hangs", "better", "fails", "not here", "dies", "best"]
def run(options, number):
    name = NAMES[number]
    if name == "hangs":
        threading.Event().wait()
    if name == "fails":
        raise RuntimeError("planted")
    if name == "not here":
        raise cases.LeftOut("no such device")
    if name == "dies":
        os._exit(7)
if __name__ == "__main__":
    raise SystemExit(cases.main("planted_cases", "", lambda options: NAMES, run))
"""


def test_cases_go_on_behind_one_that_fails_hangs_or_ends_its_process(tmp_path):
    (tmp_path / "planted_cases.py").write_text(CASES)
    kept = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, "-m", "planted_cases", "--patience", "3", "--json", str(kept)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads(kept.read_text())
    assert found["passed"] == ["good", "better", "best"]
    assert found["failed"] == {
        "hangs": "said nothing for 3 s",
        "fails": "RuntimeError: planted",
        "dies": "process ended with 7",
    }
    assert found["left_out"] == {"not here": "no such device"}
