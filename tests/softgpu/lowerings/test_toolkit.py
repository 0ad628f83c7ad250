"""NVRTC and nvJitLink give PTX here where clients expect machine code.

The tests call both by the names that the whole process finds, as the bindings do.
"""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver, nvrtc
from helpers.driver.call_results import ok

from cudasync.softgpu import install

HEADER = b".version 7.0\n.target sm_70\n.address_size 64\n"
MAIN = HEADER + b".extern .func f();\n.visible .entry main() { call f, (); ret; }\n"
HELPER = HEADER + b".visible .func f() { ret; }\n"
PTX, LIBRARY, ANY = 2, 6, 10


@pytest.fixture
def process(context):
    install()
    return ctypes.CDLL(None)


class JitLink:
    """nvJitLink's functions on one handle; each returns its result code."""

    def __init__(self, process):
        self.process = process
        self.handle = ctypes.c_void_p()
        options = (ctypes.c_char_p * 1)(b"-arch=sm_80")
        assert process.nvJitLinkCreate(ctypes.byref(self.handle), 1, options) == 0

    def __getattr__(self, name):
        function = getattr(self.process, f"nvJitLink{name}")
        return lambda *arguments: function(self.handle, *arguments)

    def add(self, text, kind=PTX):
        return self.AddData(kind, text, ctypes.c_size_t(len(text)), b"text")

    def text(self, what):
        size = ctypes.c_size_t()
        assert getattr(self, f"{what}Size")(ctypes.byref(size)) == 0
        buffer = ctypes.create_string_buffer(size.value)
        assert getattr(self, what)(buffer) == 0
        return buffer.value


def test_nvjitlink_links_ptx_to_ptx_that_loads(process):
    link = JitLink(process)
    assert link.add(MAIN) == link.add(HELPER, ANY) == 0
    assert link.Complete() == 0
    cubin = link.text("GetLinkedCubin")
    assert link.text("GetLinkedPtx") == cubin
    module = ok(driver.cuModuleLoadData(cubin))
    ok(driver.cuModuleGetFunction(module, b"main"))
    assert process.nvJitLinkDestroy(ctypes.byref(link.handle)) == 0
    assert not link.handle.value


def test_nvjitlink_says_what_is_missing(process):
    link = JitLink(process)
    assert link.add(MAIN) == 0
    assert link.Complete() != 0
    assert b"Undefined reference to 'f' in 'text'" in link.text("GetErrorLog")
    assert link.text("GetInfoLog") == b""


def test_nvjitlink_refuses_machine_code_and_handles_that_are_none(process):
    link = JitLink(process)
    assert link.add(b"\x7fELF", 1) != 0
    assert b"machine code" in link.text("GetErrorLog")
    assert link.add(HELPER, 99) != 0
    assert process.nvJitLinkComplete(ctypes.c_void_p(12345)) != 0
    assert process.nvJitLinkDestroy(ctypes.byref(ctypes.c_void_p(12345))) != 0


def test_nvjitlink_is_too_old_for_optimising_at_link_time(process):
    major, minor = ctypes.c_uint(), ctypes.c_uint()
    assert process.nvJitLinkVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
    assert (major.value, minor.value) < (12, 3)


@pytest.fixture
def compiled(context):
    """Compile an empty program with NVRTC for an architecture."""
    install()
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError:
        pytest.skip("no NVRTC")

    def compiled(architecture):
        source = b'extern "C" __global__ void empty() { }'
        program = ok(nvrtc.nvrtcCreateProgram(source, b"main.cu", 0, [], []))
        ok(nvrtc.nvrtcCompileProgram(program, 1, [b"-arch=" + architecture]))
        return program

    return compiled


def test_a_cubin_of_nvrtc_is_the_program_s_ptx(compiled):
    program = compiled(b"sm_80")
    cubin = b" " * ok(nvrtc.nvrtcGetCUBINSize(program))
    ok(nvrtc.nvrtcGetCUBIN(program, cubin))
    ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
    ok(nvrtc.nvrtcGetPTX(program, ptx))
    assert cubin == ptx
    ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(cubin)), b"empty"))


def test_without_a_real_architecture_nvrtc_has_no_cubin(compiled):
    program = compiled(b"compute_80")
    assert ok(nvrtc.nvrtcGetCUBINSize(program)) == 0
    assert nvrtc.nvrtcGetCUBIN(program, b" ")[0] != 0
