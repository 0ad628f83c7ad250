"""CUDA C to PTX: names, options, places of errors, and the cache on disk."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from helpers.driver.nvrtc import needs_nvrtc

import cudasync as cs
from cudasync.driver.compiler import compilation, nvrtc
from cudasync.driver.compiler.compilation import compile_cuda
from cudasync.kept import VARIABLE
from cudasync.ptx import parse

pytestmark = needs_nvrtc

PLAIN = 'extern "C" __global__ void fill(float* x, int n) { x[threadIdx.x] = n; }'
TEMPLATE = "template <class T> __global__ void fill(T* x) { x[threadIdx.x] = 1; }"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of kept code in this test, which is empty."""
    where = tmp_path / "kept"
    monkeypatch.setenv(VARIABLE, str(where))
    return where


@pytest.fixture
def compiled(monkeypatch):
    """The sources that NVRTC compiles."""
    sources = []
    before = nvrtc.compile_program

    def counted(source, *rest):
        sources.append(source)
        return before(source, *rest)

    monkeypatch.setattr(nvrtc, "compile_program", counted)
    return sources


def test_a_kernel_becomes_ptx_that_is_understood():
    made = compile_cuda(PLAIN)
    assert made.lowered == {}
    assert made.log == ""
    (kernel,) = parse(made.ptx, "here").kernels
    assert kernel.name == "fill"


def test_a_name_expression_has_its_name_in_the_ptx():
    made = compile_cuda(TEMPLATE, name_expressions=["fill<float>", "fill<double>"])
    names = {kernel.name for kernel in parse(made.ptx, "here").kernels}
    assert names == set(made.lowered.values())
    assert list(made.lowered) == ["fill<float>", "fill<double>"]


def test_warnings_are_told(folder):
    source = "__global__ void k() { int unused; }"
    first, again = compile_cuda(source), compile_cuda(source)
    assert "unused" in first.log
    assert first == again


# Architectures.


def target(ptx):
    return re.search(r"^\.target (\S+)", ptx, re.MULTILINE)[1]


def test_it_is_compiled_for_the_current_device():
    major, minor = cs.Device(0).compute_capability
    wanted = nvrtc.architecture_for((major, minor))
    assert target(compile_cuda(PLAIN).ptx) == wanted.replace("compute", "sm")
    assert int(wanted.removeprefix("compute_")) <= 10 * major + minor


def test_of_what_nvrtc_knows_the_newest_that_the_device_runs_is_taken():
    known = nvrtc.architectures()
    assert list(known) == sorted(known)
    for each in known:
        assert nvrtc.architecture_for(divmod(each, 10)) == f"compute_{each}"
    assert nvrtc.architecture_for((99, 9)) == f"compute_{known[-1]}"
    gaps = [n for n in range(known[0], known[-1]) if n not in known]
    for n in gaps:
        below = max(each for each in known if each < n)
        assert nvrtc.architecture_for(divmod(n, 10)) == f"compute_{below}"


def test_a_device_that_is_too_old_for_this_nvrtc_is_told_so():
    with pytest.raises(cs.CudasyncError, match=r"1\.0 needs an older NVRTC"):
        nvrtc.architecture_for((1, 0))


def test_an_architecture_may_be_given_as_a_capability_a_name_or_an_option():
    assert target(compile_cuda(PLAIN, architecture=(9, 0)).ptx) == "sm_90"
    assert target(compile_cuda(PLAIN, architecture="sm_90a").ptx) == "sm_90a"
    for wrong in (3.5, 80, (8,), ("8", "0"), [8, 0]):
        with pytest.raises(TypeError, match="architecture takes a compute capability"):
            compile_cuda(PLAIN, architecture=wrong)
    assert target(compile_cuda(PLAIN, options=["-arch=compute_90"]).ptx) == "sm_90"
    assert target(compile_cuda(PLAIN, options=["-arch", "compute_90"]).ptx) == "sm_90"


# Kept code.


def test_what_was_compiled_is_found_by_the_next_one(folder, compiled):
    first = compile_cuda(TEMPLATE, name_expressions=["fill<float>"])
    assert compile_cuda(TEMPLATE, name_expressions=["fill<float>"]) == first
    assert len(compiled) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"source": TEMPLATE + " "},
        {"name": "other.cu"},
        {"architecture": (9, 0)},
        {"options": ["--std=c++20"]},
        {"options": ["-DX=1"]},
        {"include_dirs": ["elsewhere"]},
        {"name_expressions": ["fill<double>"]},
        {"name_expressions": []},
        {"name_expressions": ["fill<float>", "fill<double>"]},
    ],
)
def test_what_differs_in_anything_is_another(folder, compiled, other):
    usual = {"source": TEMPLATE, "name_expressions": ["fill<float>"], "architecture": (8, 0)}
    compile_cuda(**usual)
    compile_cuda(**{**usual, **other})
    assert len(compiled) == 2


HEADED = '#include "fill.cuh"\n' + PLAIN.replace("= n", "= filled(n)")


@pytest.mark.parametrize("place", ["plain", "projéct one", 'a "b\\c', "42"])
@pytest.mark.parametrize(
    ("name", "include_dirs", "expected"),
    [
        ("<cuda>", ["{here}/inc"], {"<cuda>", "{first}/inc/fill.cuh"}),
        ("<cuda>", ["inc"], {"<cuda>", "inc/fill.cuh"}),
        ("sub/é.cu", ["inc"], {"sub/é.cu", "inc/fill.cuh"}),
        ("{here}/fill.cu", ["inc"], {"{first}/fill.cu", "inc/fill.cuh"}),
    ],
)
def test_kept_code_names_no_folder_that_the_caller_did_not_name(
    folder, compiled, tmp_path, monkeypatch, place, name, include_dirs, expected
):
    """Two programs, each in a folder of its own, give the same relative names."""
    first, second = tmp_path / place, tmp_path / "second"
    options = ["-lineinfo"]
    for turn, here in enumerate((first, second)):
        (here / "inc").mkdir(parents=True)
        (here / "inc" / "fill.cuh").write_text("__device__ int filled(int n) { return n + 1; }")
        monkeypatch.chdir(here)
        made = compile_cuda(
            HEADED,
            name=name.format(here=first),
            options=options,
            include_dirs=[each.format(here=first) for each in include_dirs],
        )
        assert len(compiled) == 1, turn
        (kernel,) = parse(made.ptx).kernels
        files = {each.file for each in kernel.locations}
        assert files <= {each.format(first=first) for each in expected}
        assert name.format(here=first) in files


def test_another_nvrtc_compiles_anew(folder, compiled, monkeypatch):
    compile_cuda(PLAIN)
    monkeypatch.setattr(nvrtc, "version", lambda: (99, 0))
    compile_cuda(PLAIN)
    assert len(compiled) == 2


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:-1], lambda data: data * 2]
)
def test_a_damaged_file_is_compiled_anew_and_mended(folder, compiled, damage):
    first = compile_cuda(PLAIN)
    (file,) = folder.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert compile_cuda(PLAIN) == first
    assert compile_cuda(PLAIN) == first
    assert len(compiled) == 2


def test_what_can_not_be_kept_is_compiled_each_time(tmp_path, monkeypatch, compiled):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file" / "below"))
    assert compile_cuda(PLAIN) == compile_cuda(PLAIN)
    assert len(compiled) == 2


def test_what_does_not_compile_is_not_kept(folder):
    for _ in range(2):
        with pytest.raises(cs.CompileError):
            compile_cuda("no C at all")
    assert not folder.exists()


def test_several_threads_compile_the_same_at_once(folder):
    results, gate = [], threading.Barrier(4)

    def compile_it():
        gate.wait(60)
        results.append(compile_cuda(TEMPLATE, name_expressions=["fill<int>"]))

    threads = [threading.Thread(target=compile_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(each == results[0] for each in results)
    assert len(list(folder.iterdir())) == 1


# Includes.


def value_of(ptx):
    return re.search(r"\bvalue = (\d+);", ptx)[1]


USES_A_HEADER = '#include "value.h"\n__device__ int value = VALUE;'


def test_a_header_that_changes_is_compiled_anew(folder, compiled, tmp_path):
    header = tmp_path / "value.h"
    for number in (1, 2, 1):
        header.write_text(f"#define VALUE {number}")
        assert value_of(compile_cuda(USES_A_HEADER, include_dirs=[tmp_path]).ptx) == f"{number}"
    assert len(compiled) == 2


@pytest.mark.parametrize(
    ("files", "options"),
    [
        # A header's header, beside the header, and in its own folder.
        ({"value.h": '#include "inner.h"', "inner.h": "#define VALUE {}"}, ["-I{}"]),
        ({"value.h": "#include <in/inner.h>", "in/inner.h": "#define VALUE {}"}, ["-I", "{}"]),
        ({"value.h": '#include "in/a.h"', "in/a.h": '#include "b.h"', "in/b.h": "#define VALUE {}"},
         ["--include-path={}"]),
        ({"value.h": '# /* a */ include /* b */ "inner.h"', "inner.h": "#define VALUE {}"},
         ["-I{}"]),
        ({"value.h": '#incl\\\nude "inner.h"', "inner.h": "#define VALUE {}"}, ["-I{}"]),
        ({"value.h": '#define INNER "inner.h"\n#include INNER', "inner.h": "#define VALUE {}"},
         ["-I{}"]),
        ({"value.h": "", "first.h": "#define VALUE {}"}, ["-I{}", "--pre-include=first.h"]),
        ({"value.h": "", "first.h": "#define VALUE {}"}, ["-I{}", "-include", "first.h"]),
    ],
)  # fmt: skip
def test_whatever_leads_to_a_header_it_is_noticed(folder, tmp_path, files, options):
    for number in (1, 2):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text.replace("{}", f"{number}"))
        given = [option.replace("{}", str(tmp_path)) for option in options]
        assert value_of(compile_cuda(USES_A_HEADER, options=given).ptx) == f"{number}"


def test_a_header_that_comes_before_the_one_of_before_is_noticed(folder, tmp_path):
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    (far / "value.h").write_text("#define VALUE 1")
    assert value_of(compile_cuda(USES_A_HEADER, include_dirs=[near, far]).ptx) == "1"
    (near / "value.h").write_text("#define VALUE 2")
    assert value_of(compile_cuda(USES_A_HEADER, include_dirs=[near, far]).ptx) == "2"
    (near / "value.h").unlink()
    assert value_of(compile_cuda(USES_A_HEADER, include_dirs=[near, far]).ptx) == "1"


def test_whether_a_header_is_there_is_noticed(folder, tmp_path):
    source = '#if __has_include("x.h")\n#define VALUE 1\n#else\n#define VALUE 2\n#endif\n'
    source += "__device__ int value = VALUE;"
    assert value_of(compile_cuda(source, include_dirs=[tmp_path]).ptx) == "2"
    (tmp_path / "x.h").write_text("")
    assert value_of(compile_cuda(source, include_dirs=[tmp_path]).ptx) == "1"


def test_headers_that_include_each_other_end(folder, tmp_path):
    (tmp_path / "value.h").write_text('#pragma once\n#include "other.h"\n#define VALUE 1')
    (tmp_path / "other.h").write_text('#pragma once\n#include "value.h"')
    assert value_of(compile_cuda(USES_A_HEADER, include_dirs=[tmp_path]).ptx) == "1"


def test_options_that_read_or_write_other_files_keep_nothing(folder, tmp_path, compiled):
    for _ in range(2):
        compile_cuda(PLAIN, options=[f"--time={tmp_path / 'times'}"])
    assert len(compiled) == 2
    assert not folder.exists()


# Errors.


def refusal(source, **more):
    with pytest.raises(cs.CompileError) as caught:
        compile_cuda(source, **more)
    return caught.value


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("    x[0] = missing;", 12),
        ("\tx[0] = missing;", 9),
        ('    "ä€𝄞", x[0] = missing;', 19),
        ("    x[0] = missing;\r", 12),
    ],
)
def test_an_error_tells_the_place(line, column):
    error = refusal(f"__global__ void k(int* x) {{\n{line}\n}}\n", name="some kernel.cu")
    assert error.message == 'identifier "missing" is undefined'
    assert (error.file, error.line, error.column) == ("some kernel.cu", 2, column)
    assert error.source == line.rstrip("\r")
    assert error.source[column - 1 :].startswith("missing")


def test_its_text_marks_the_line_and_has_all_that_nvrtc_said():
    text = str(refusal("__global__ void k(int* x) {\n    x[0] = one;\n    x[1] = two;\n}"))
    first, marked, mark, *rest = text.splitlines()
    assert first == '<cuda>:2:12: identifier "one" is undefined'
    assert marked == "    2 |     x[0] = one;"
    assert mark.index("^") == marked.index("one")
    assert 'identifier "two" is undefined' in "\n".join(rest)


def test_a_very_long_line_is_told_in_full():
    line = "int " + "x" * 5000 + " = missing;"
    error = refusal(f"__global__ void k() {{\n{line}\n}}")
    assert error.line == 2
    assert error.source == line
    assert error.column in (0, line.index("missing") + 1)


def test_an_error_in_a_header_is_told_of_the_header(tmp_path):
    (tmp_path / "value.h").write_text("\n__device__ int broken = missing;")
    error = refusal(USES_A_HEADER, include_dirs=[tmp_path])
    assert error.file == str(tmp_path / "value.h")
    assert error.line == 2
    assert error.source == "__device__ int broken = missing;"


def test_a_name_expression_that_names_nothing_is_told():
    for expression in ("nothing", "fill<nothing>", "fill<"):
        error = refusal(TEMPLATE, name_expressions=["fill<int>", expression])
        assert error.message.startswith(f"name expression {expression!r}: ")
        assert (error.line, error.column, error.source) == (0, 0, "")


def test_an_option_or_an_architecture_that_nvrtc_does_not_know_is_told():
    error = refusal(PLAIN, options=["--nonsense"])
    assert "--nonsense" in error.message
    assert error.line == 0
    assert "architecture" in refusal(PLAIN, architecture="compute_1").message


def test_options_that_make_no_ptx_are_told():
    assert (
        refusal(PLAIN, options=["-dlto"]).message
        == "these options produce no PTX: leave -dlto and other output options out"
    )


def test_what_no_compiler_will_take_is_refused_before():
    for wrong in (b"bytes", None, Path("file.cu")):
        with pytest.raises(TypeError, match="CUDA C is a str"):
            compile_cuda(wrong)
    for name in ("options", "name_expressions"):
        for wrong in ("-DX", b"-DX", [1]):
            with pytest.raises(TypeError, match=f"{name} is a sequence of str"):
                compile_cuda(PLAIN, **{name: wrong})
    for more in ({"source": "a\0b"}, {"name": "\0"}, {"options": ["\0"]},
                 {"name_expressions": ["\0"]}):  # fmt: skip
        with pytest.raises(ValueError, match="NUL character"):
            compile_cuda(**{"source": PLAIN, **more})


def test_a_planted_blindness_to_headers_is_found(folder, tmp_path, monkeypatch):
    """The tests above can fail: without the digest of the headers, old code is found."""
    monkeypatch.setattr(compilation, "included", lambda *whatever, **more: "")
    header = tmp_path / "value.h"
    header.write_text("#define VALUE 1")
    compile_cuda(USES_A_HEADER, include_dirs=[tmp_path])
    header.write_text("#define VALUE 2")
    assert value_of(compile_cuda(USES_A_HEADER, include_dirs=[tmp_path]).ptx) == "1"
