"""Outlines kept on disk: a later process that loads compiled code does not parse its PTX."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering.jit_launch import fault_of, run
from helpers.repository.checkout import ROOT

from cudasync.kept import VARIABLE
from cudasync.ptx import parse
from cudasync.softgpu.jit import compile_module, ir_cache
from cudasync.softgpu.jit.launch import kernel_outline
from cudasync.softgpu.jit.module import find_module

SAXPY = (ROOT / "ptx/kernels/saxpy.ptx").read_bytes()
MANY = (ROOT / "bench/softgpu/kernels.ptx").read_bytes()
HEAD = ".version 7.8\n.target sm_90\n.address_size 64\n"
KERNEL = ".visible .entry empty() { ret; }\n"
REFUSED = """
.visible .entry other(.param .u64 at)
{
    .reg .u64 %rd<2>;
    ld.param.u64 %rd0, [at];
    mapa.u64 %rd1, %rd0, 0;
    ret;
}
"""
ABOUT = [
    "name", "parameter_size", "parameter_offsets", "parameter_sizes", "static_shared_bytes",
    "local_bytes", "max_threads", "outline",
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


@pytest.fixture
def parsed(monkeypatch) -> list[bytes]:
    """The images that a found module has parsed."""
    images: list[bytes] = []
    monkeypatch.setattr(kernel_outline, "parse", lambda image: images.append(image) or parse(image))
    return images


def compiled(image: bytes):
    return compile_module(parse(image), image=image)


def test_what_is_found_is_what_was_compiled(parsed):
    assert find_module(MANY) is None
    made = compiled(MANY)
    found = find_module(MANY)
    assert (found.target, found.version) == (parse(MANY).target, parse(MANY).version)
    assert list(found.compiled.kernels) == list(made.kernels)
    assert len(made.kernels) > 10
    for name, kernel in found.compiled.kernels.items():
        for each in ABOUT:
            assert getattr(kernel, each) == getattr(made.kernels[name], each), (name, each)
    assert not parsed


def test_a_kernel_that_is_found_runs_unparsed_and_tells_of_a_fault_as_ever(parsed):
    made = compiled(SAXPY)
    found = find_module(SAXPY).compiled
    x, y = np.ones(100, np.float32), np.zeros(100, np.float32)
    run(found, "saxpy", 1, 128, np.float32(3), x, y, np.uint32(100))
    assert (y == 3).all()
    assert not parsed
    faults = [
        fault_of(each, "saxpy", 1, 128, np.float32(3), x, y[:64], np.uint32(100))
        for each in (made, found)
    ]
    assert faults[0] == faults[1]
    assert faults[0].line > 1
    # The second fault of the same kernel does not parse again.
    fault_of(found, "saxpy", 1, 128, np.float32(3), x, y[:64], np.uint32(100))
    assert parsed == [SAXPY]


def test_a_variant_that_nobody_had_is_lowered_from_the_text(parsed):
    made = compiled(SAXPY)
    found = find_module(SAXPY).compiled
    x, y = np.ones(100, np.float32), np.zeros(100, np.float32)
    run(found, "saxpy", 2, (5, 10), np.float32(3), x, y, np.uint32(100))
    variant = found.kernels["saxpy"].variant((5, 10, 1))
    assert parsed == [SAXPY]
    assert found.kernels["saxpy"].text(variant) == made.kernels["saxpy"].text(variant)


@pytest.mark.parametrize(
    "more", [".visible .global .u32 count;\n", REFUSED], ids=["a variable", "a refused kernel"]
)
def test_what_is_not_kept_is_not_found(more):
    image = (HEAD + KERNEL).encode()
    compiled(image)
    assert find_module(image) is not None
    image = (HEAD + more + KERNEL).encode()
    made = compiled(image)
    assert made.variables or made.refused
    assert find_module(image) is None


def test_other_settings_and_compilers_find_nothing(monkeypatch):
    compiled(SAXPY)
    assert find_module(SAXPY) is not None
    assert find_module(SAXPY, memcheck=False) is None
    assert find_module(SAXPY + b"\n") is None
    monkeypatch.setattr(ir_cache, "_COMPILER", "another")
    assert find_module(SAXPY) is None
    monkeypatch.undo()
    monkeypatch.setenv(VARIABLE, "0")
    assert find_module(SAXPY) is None
