"""Programs that call the driver of the software GPU in a process of their own."""

from __future__ import annotations

import textwrap

from helpers.repository.fork_server import run_warm

PRELUDE = """
import ctypes, faulthandler, os, random, sys, threading
faulthandler.dump_traceback_later({deadline_s}, exit=True)
from cudasync.softgpu import install
# Also on a machine with a GPU.
install(force=True)
from cuda.bindings import driver as d
from helpers.driver.call_results import create_context
R = d.CUresult
def ok(result):
    assert result[0] == R.CUDA_SUCCESS, (result, d.cuGetErrorString(result[0])[1])
    return result[1] if len(result) == 2 else result[1:]
def said(code):
    return d.cuGetErrorString(code)[1].decode()
def code(result):
    return result[0].name.removeprefix("CUDA_ERROR_")
def read(address, size):
    back = ctypes.create_string_buffer(size)
    ok(d.cuMemcpyDtoH(ctypes.addressof(back), address, size))
    return back.raw
ok(d.cuInit(0))
contexts = [ok(d.cuDevicePrimaryCtxRetain(n)) for n in range(ok(d.cuDeviceGetCount()))]
ok(d.cuCtxSetCurrent(contexts[0]))
stream = ok(d.cuStreamCreate(1))
PTX = b'''.version 6.4
.target sm_75
.address_size 64
.visible .entry set(.param .u64 set_word, .param .u32 set_value)
{{
    .reg .u32 %value;
    .reg .u64 %rd_word;
    ld.param.u64 %rd_word, [set_word];
    ld.param.u32 %value, [set_value];
    st.global.u32 [%rd_word], %value;
    ret;
}}
'''
def load_set_word():
    # A load waits for the device, so it comes before a stream is held.
    return ok(d.cuModuleGetFunction(ok(d.cuModuleLoadData(PTX)), b"set"))
def set_word(address, value, on=None, kernel=None):
    kernel = kernel or load_set_word()
    arguments = ((int(address), value), (ctypes.c_void_p, ctypes.c_uint))
    return d.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, on or 0, arguments, 0)
"""


def run_driver(body: str, *, devices: int = 1, deadline_s: float = 40.0, **environment: str) -> str:
    """Run `body` with the driver ready; it must end with status 0. Return what it printed."""
    source = PRELUDE.format(deadline_s=deadline_s) + textwrap.dedent(body)
    environment = {"CUDASYNC_SOFTGPU_DEVICES": str(devices), **environment}
    done = run_warm(source, deadline_s + 5, **environment)
    assert done.code == 0, f"ended with {done.code}:\n{done.out}{done.err}"
    return done.out + done.err
