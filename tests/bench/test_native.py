"""bench/suites/native_suite.py: how it finds, reads and judges the programs of a folder."""

from __future__ import annotations

import pytest

from bench.suites.native_arguments import SMALLER
from bench.suites.native_programs import programs_of
from bench.suites.native_suite import sample
from bench.suites.native_verdicts import judged, summary


@pytest.mark.parametrize(
    ("status", "said", "outcome"),
    [
        (0, "Test PASSED\n", "passed"),
        (0, "result: 0 mismatches, verified\n", "passed"),
        (0, "L1 error: 2.7E-08\nTest passed\n", "passed"),
        (0, "Test PASSED\nmismatch at 3\n", "failed"),
        (0, "Result = FAIL\n", "failed"),
        (1, "Test PASSED\n", "failed"),
        (0, "done in 3 ms\n", "skipped"),
        (0, "total bit error = 0\n", "passed"),
        (0, "total bit error = 0\ntotal bit error = 12\n", "skipped"),
        (2, "cooperative launch is not supported, waiving\n", "skipped"),
        (0, "cudasync software GPU: cudaFoo is not supported: no\nTest PASSED\n", "refused"),
        (2, "cudasync native: it is built by a compiler before CUDA 13\n", "refused"),
        (1, "cannot open input file data.bin\n", "skipped"),
        (1, "No such folder: data/test/\n", "skipped"),
        (-6, "su_trace.cpp:38: Assertion `file' failed.\n", "skipped"),
        (1, "on the cudasync software GPU\nfile <a64.ptx> not found!\n", "skipped"),
        (0, "cannot open a log, Test PASSED\n", "passed"),
        (1, "symbol not found\ncudasync software GPU: a kernel is at fault\n", "failed"),
        (-11, "Test PASSED\n", "lost"),
        (None, "", "lost"),
    ],
)
def test_a_program_passes_if_its_own_check_does(status, said, outcome):
    assert judged(status, said)[0] == outcome


@pytest.mark.parametrize(
    ("status", "said", "outcome"),
    [
        (0, "done in 3 ms\n", "passed"),
        (0, "mismatch at 3\n", "failed"),
        (1, "done in 3 ms\n", "failed"),
        (2, "this device does not support it, waiving\n", "skipped"),
    ],
)
def test_a_program_may_judge_by_its_exit_status_alone(status, said, outcome):
    assert judged(status, said, judges_by_status=True)[0] == outcome


def test_programs_are_read_from_make_and_cmake(tmp_path, monkeypatch):
    monkeypatch.setitem(SMALLER, "by-table", "8 10")
    for name, files in {
        "by-make": {
            "Makefile": "source = main.cu \\\n  other.cu\nCFLAGS := -I../shared -DN=3\n"
            "run: main\n\t./$(program) 8 100\n",
            "main.cu": '#include "x.h"\nint main() { puts("Usage: %s <size> <repeat>"); }\n',
            "other.cu": "",
            "unused.cu": "",
        },
        "by-cmake": {
            "CMakeLists.txt": "set(CUDA_SEPARABLE_COMPILATION ON)\n"
            "include_directories(../shared)\nadd_executable(p p.cpp ../s/c.cpp)\n"
            "COMMAND nvcc -o kernel64.fatbin kernel.cu\nCOMMAND nvcc -o text.ptx text.cu",
            "p.cpp": "int main() { exit(is_right ? EXIT_SUCCESS : EXIT_FAILURE); }",
            "kernel.cu": "",
            "text.cu": "",
        },
        "by-library": {"main.cu": "#include <cublas_v2.h>\nint main() {}"},
        "by-table": {
            "Makefile": "run: main\n\t./main 8 1000000\n",
            "main.cu": "int main() {\n  if (test()) return 1;\n}",
        },
        "by-variables": {"Makefile": "run: main\n\t./main $(DATA)\n", "main.cu": "int main() {}"},
        "no-program": {"part.cu": "void f() {}"},
        "s": {"c.cpp": ""},
    }.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    found = {each.name: each for each in programs_of(tmp_path)}
    names = ["by-cmake", "by-library", "by-make", "by-table", "by-variables"]
    assert sorted(found) == names
    assert list(programs_of(tmp_path, ["cmake", "nothing"])) == [found["by-cmake"]]
    assert found["by-table"].arguments == ("8", "10")
    assert found["by-table"].judges_by_status
    assert found["by-variables"].skipped == "its arguments are variables of make"
    make, cmake = found["by-make"], found["by-cmake"]
    assert [path.name for path in make.sources] == ["main.cu", "other.cu"]
    assert make.flags == ("-I../shared", "-DN=3")
    assert make.arguments == ("8", "1")
    assert (make.judges_by_status, cmake.judges_by_status) == (False, True)
    assert cmake.flags == ("-I../shared", "-rdc=true")
    assert [path.name for path in cmake.sources] == ["p.cpp", "c.cpp"]
    assert [(path.name, target) for path, target in cmake.modules] == [
        ("kernel.cu", "kernel64.fatbin"),
        ("text.cu", "text.ptx"),
    ]
    assert found["by-library"].skipped == "needs another library: cublas"


def test_a_sample_changes_little_with_the_folder(tmp_path):
    for number in range(20):
        folder = tmp_path / f"program{number}"
        folder.mkdir()
        (folder / "main.cu").write_text("int main() {}")
    programs = {each.name: each for each in programs_of(tmp_path)}
    drawn = sample(list(programs), programs, 8, 1)
    assert drawn == sample(list(reversed(programs)), programs, 8, 1)
    assert drawn != sample(list(programs), programs, 8, 2)
    rest = [name for name in programs if name != drawn[0]]
    assert sample(rest, programs, 7, 1) == drawn[1:]


def test_the_summary_counts_what_was_built():
    ends = [
        ("passed", ""),
        ("passed", ""),
        ("failed", "exit status 1: mismatch"),
        ("lost", "not done by its deadline: "),
        ("lost", "ended by SIGABRT: "),
        ("refused", "no"),
        ("skipped", "lacks a file: data"),
        ("skipped", "says nothing of its answer"),
        ("skipped", "does not build: error"),
        ("skipped", "needs another library: cublas"),
    ]
    tests = [{"test": str(n), "outcome": o, "reason": why} for n, (o, why) in enumerate(ends)]
    assert summary(tests).startswith(
        "8 programs built: 2 right, 1 wrong, 1 refused, 1 too slow, 1 crashed, 1 without a file, "
        "1 without a verdict\n"
    )
