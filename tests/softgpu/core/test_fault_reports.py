"""A fault names kernel, PTX line, source line, block, threads, access and allocation."""

from __future__ import annotations

import ctypes
import inspect

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import message, ok
from helpers.repository.subprocesses import run_text

PTX = """.version 6.4
.target sm_75
.address_size 64
.file 1 "kernels/wild.cu"

.visible .entry wild(.param .u64 wild_words, .param .u32 wild_offset)
{
    .reg .u32 %r<4>;
    .reg .u64 %rd<4>;
    .shared .align 4 .b8 shared_words[64];
    .local .align 4 .b8 local_words[16];
    .loc 1 11 3
    ld.param.u64 %rd1, [wild_words];
    ld.param.u32 %r1, [wild_offset];
    mov.u32 %r2, %laneid;
    .loc 1 17 5
    {access}
    .loc 1 18 1
    ret;
}
"""
LINE = 1 + PTX[: PTX.index("{access}")].count("\n")


def fault(access, memory, offset=0):
    """The result code and message of a kernel that makes this access."""
    module = ok(driver.cuModuleLoadData(PTX.replace("{access}", access).encode()))
    function = ok(driver.cuModuleGetFunction(module, b"wild"))
    arguments = (int(memory), offset), (ctypes.c_void_p, ctypes.c_uint)
    ok(driver.cuLaunchKernel(function, 3, 1, 1, 8, 2, 1, 0, 0, arguments, 0))
    (code,) = driver.cuCtxSynchronize()
    return int(code), message(code)


def here() -> str:
    """The caller's line, in the form of a report."""
    frame = inspect.currentframe().f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def test_a_wild_access_names_everything(context):
    memory, made_at = ok(driver.cuMemAlloc(100)), here()
    code, text = fault("mad.wide.u32 %rd1, %r2, 8, %rd1; st.global.u32 [%rd1], 1;", memory)
    assert code == 700
    for part in (
        f"kernel wild, PTX line {LINE} (kernels/wild.cu:17), block (0, 0, 0)",
        "threads (5, 1, 0), (6, 1, 0), (7, 1, 0)",
        f".global write of 4 bytes at {int(memory) + 104:#x}",
        "4 bytes past the end of device memory of 100 bytes",
        f"allocated at {made_at}",
    ):
        assert part in text


def test_freed_memory_says_where_it_was_freed(context):
    memory, made_at = ok(driver.cuMemAlloc(100)), here()
    freed_at = (ok(driver.cuMemFree(memory)), here())[1]
    code, text = fault("ld.global.u32 %r3, [%rd1+16];", memory)
    assert code == 700
    assert f"in freed device memory of 100 bytes at {int(memory):#x}" in text
    assert f"allocated at {made_at}, freed at {freed_at}" in text
    assert ".global read of 4 bytes" in text


@pytest.mark.parametrize(
    ("access", "part"),
    [
        ("st.shared.u32 [shared_words+64], 1;", ".shared write of 4 bytes at offset 64 in 64"),
        ("ld.shared.u64 %rd2, [shared_words+60];", ".shared read of 8 bytes at offset 60 in 64"),
        ("ld.local.u32 %r3, [%r1+16];", ".local read of 4 bytes at offset 16 in 16 bytes"),
        ("st.local.u32 [local_words+40], %r2;", ".local write of 4 bytes at offset 40 in 16"),
    ],
)  # fmt: skip
def test_memory_of_the_block_is_told_by_offset(context, access, part):
    memory = ok(driver.cuMemAlloc(100))
    code, text = fault(access, memory)
    assert code == (716 if "60" in part else 700)
    assert part in text
    assert f"PTX line {LINE} (kernels/wild.cu:17)" in text


@pytest.mark.parametrize(
    ("access", "code", "words"),
    [
        ("ld.global.u32 %r3, [%rd1+2];", 716, "misaligned address"),
        ("trap;", 719, "a kernel executed trap"),
        ("setp.eq.u32 %p, %r2, 1; @%p bra a; bar.sync 1; a: bar.sync 2;", 719, "a barrier can"),
    ],
)
def test_other_faults_name_the_place_too(context, access, code, words):
    memory = ok(driver.cuMemAlloc(100))
    found, text = fault(f".reg .pred %p; {access}", memory)
    assert found == code
    assert words in text
    assert f"kernel wild, PTX line {LINE} (kernels/wild.cu:17), block (0, 0, 0), thread" in text


UNCHECKED = """
import ctypes
from cudasync.softgpu import install
install()
from cuda.bindings import driver as d
d.cuInit(0); d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])
memory = d.cuMemAlloc(1024)[1]
d.cuMemsetD32(memory, 0, 256)
d.cuMemFree(memory)
kept = d.cuMemAlloc(64)[1]
text = {ptx!r}
function = d.cuModuleGetFunction(d.cuModuleLoadData(text.encode())[1], b"wild")[1]
d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0,
    ((int(kept), 0), (ctypes.c_void_p, ctypes.c_uint)), 0)
print(int(d.cuCtxSynchronize()[0]))
"""


@pytest.mark.parametrize(("setting", "code"), [("0", "0"), ("1", "700"), ("", "700")])
def test_memcheck_can_be_turned_off(setting, code):
    access = "st.global.u32 [%rd1+64], 7;"
    program = UNCHECKED.format(ptx=PTX.replace("{access}", access))
    ended, printed = run_text(program, 30, CUDASYNC_MEMCHECK=setting)
    assert (ended, printed) == (0, f"{code}\n")
