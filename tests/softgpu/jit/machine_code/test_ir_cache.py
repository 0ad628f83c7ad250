"""LLVM texts kept on disk: later processes lower nothing, and find the text that lowering makes."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest
from helpers.repository.checkout import ROOT
from helpers.repository.subprocesses import start as start_process

from cudasync.kept import VARIABLE
from cudasync.ptx import parse
from cudasync.softgpu.jit import compile_module, ir_cache
from cudasync.softgpu.jit.kernel_abi.specialisation import Variant

TEXTS = [
    *sorted((ROOT / "ptx/kernels").glob("*.ptx")),
    ROOT / "bench/softgpu/kernels.ptx",
    ROOT / "tests/softgpu/corpus/waiting_sm75.ptx",
]
VARIANTS = [
    Variant(lanes=32, is_rowwise=True, is_whole=True),
    Variant(lanes=32, is_rowwise=False, is_whole=False),
]
FILL = (ROOT / "ptx/kernels/fill.ptx").read_bytes()

# A program below the engine prints its answer, and whether anything was lowered or compiled.
SCRIPT = """
    import sys
    import numpy as np
    import cudasync as cs
    x, y = cs.array(np.full(1000, 3, np.float32)), cs.zeros(1000, np.float32)
    saxpy = cs.Module.from_file("ptx/kernels/saxpy.ptx").kernel("saxpy")
    saxpy[(4,), (256,)](np.float32(4), x, y, np.uint32(1000))
    assert (y.numpy() == 12).all()
    from cudasync.softgpu.jit.machine_code import codegen
    print("cudasync.softgpu.jit.pipeline" in sys.modules, codegen.counts["compiled"])
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


@pytest.fixture
def lowered(monkeypatch) -> list[str]:
    """The names of the kernels that are lowered instead of found."""
    from cudasync.softgpu.jit import pipeline

    names: list[str] = []
    lower = pipeline.lower

    def told(program, *arguments):
        names.append(program.kernel.name)
        return lower(program, *arguments)

    monkeypatch.setattr(pipeline, "lower", told)
    return names


def runs(folder: Path, **environment: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    environment = {VARIABLE: str(folder), "CUDASYNC_DEVICE": "soft", **environment}
    status, printed = start_process(command, 60, **environment)
    assert status == 0, printed
    return printed.strip()


def test_a_second_process_lowers_nothing_and_loads_nothing_that_lowers(tmp_path):
    first = runs(tmp_path)
    assert first.startswith("True ")
    assert first != "True 0"
    assert runs(tmp_path) == "False 0"
    assert runs(tmp_path, CUDASYNC_MEMCHECK="0") != "False 0"


def test_where_nothing_is_kept_every_process_lowers(tmp_path):
    where = tmp_path / "nothing"
    where.mkdir()
    for _ in range(2):
        assert runs(where, **{VARIABLE: "0"}).startswith("True ")
    assert not list(where.iterdir())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_what_is_found_is_what_was_lowered(folder, lowered, path):
    image = path.read_bytes()
    module = parse(image)
    fresh = compile_module(module, image=image)
    made = {name: [each.text(v) for v in VARIANTS] for name, each in fresh.kernels.items()}
    assert sorted(set(lowered)) == sorted(made)
    lowered.clear()
    again = compile_module(module, image=image)
    assert {name: [each.text(v) for v in VARIANTS] for name, each in again.kernels.items()} == made
    assert not lowered


def test_texts_of_other_ptx_settings_and_compilers_are_not_found(folder, lowered, monkeypatch):
    module = parse(FILL)
    compile_module(module, image=FILL)
    assert lowered
    changes = [
        {"image": FILL + b"\n"},
        {"image": FILL, "memcheck": False},
        {"image": FILL, "record": True},
        {"image": FILL, "assume_varying": True},
    ]
    for change in changes:
        lowered.clear()
        compile_module(module, **change)
        assert lowered, change
    lowered.clear()
    monkeypatch.setattr(ir_cache, "_COMPILER", ir_cache._COMPILER + "\na file that is new")
    compile_module(module, image=FILL)
    assert lowered


ROOMS = [f"softgpu/{room}" for room in ("interface", "semantics")]
PLACES = [
    "softgpu/jit/pipeline.py",
    "softgpu/jit/memory/coalescing.py",
    "softgpu/semantics/matrix_forms.py",
    "softgpu/expansion/textures/new.py",
]


@pytest.mark.parametrize("place", PLACES)
def test_an_edited_file_makes_another_compiler(tmp_path, monkeypatch, place):
    for name in ("ptx", *ROOMS, "softgpu/expansion/textures", "softgpu/jit/memory"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(ir_cache, "__file__", str(tmp_path / "softgpu/jit/ir_cache.py"))
    file = tmp_path / place
    file.write_text("1")
    first = ir_cache._compiler()
    assert ir_cache._compiler() == first
    about = file.stat()
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    second = ir_cache._compiler()
    file.write_text("12")
    third = ir_cache._compiler()
    # A tool that sets all times to one value: the content has changed, the size has not.
    about = file.stat()
    file.write_text("21")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert len({first, second, third, ir_cache._compiler()}) == 4
    monkeypatch.setattr(ir_cache, "__file__", str(tmp_path / "archive.zip/softgpu/jit/ir_cache.py"))
    assert ir_cache._compiler() is None


def test_a_process_whose_compiler_is_edited_under_it_keeps_nothing(folder, lowered, monkeypatch):
    """Its late imports are the new files, and its name for them is that of the old files."""
    module = parse(FILL)
    with monkeypatch.context() as edited:
        edited.setattr(ir_cache, "_compiler", lambda: "files that are new")
        compile_module(module, image=FILL)
    assert not list(folder.iterdir())
    lowered.clear()
    compile_module(module, image=FILL)
    assert lowered
    assert list(folder.iterdir())


def test_without_its_text_or_the_compilers_files_nothing_is_kept(folder, lowered, monkeypatch):
    module = parse(FILL)
    compile_module(module)
    monkeypatch.setattr(ir_cache, "_COMPILER", None)
    compile_module(module, image=FILL)
    assert len(lowered) == 2 * len(module.kernels)
    assert not list(folder.iterdir())


def test_a_damaged_text_is_lowered_again(folder, lowered):
    module = parse(FILL)
    compile_module(module, image=FILL)
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    lowered.clear()
    compile_module(module, image=FILL)
    assert lowered


def test_what_can_not_be_lowered_is_refused_each_time(folder):
    broken = FILL.replace(b"ret;", b"tcgen05.wait::ld.sync.aligned; ret;")
    for _ in range(2):
        refused = compile_module(parse(broken), image=broken).refused
        assert refused
        assert all("tcgen05" in each.message for each in refused.values())
    assert not list(folder.iterdir())
