"""Errors and their reports: compilers' logs, wrong handles, a wild pointer."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = b"""
extern "C" __global__ void wild(int *p) { p[threadIdx.x] = 1; }
"""
Code = driver.CUresult


def checked(result):
    code, *values = result
    if code != type(code)(0):
        raise RuntimeError(str(code))
    return values[0] if len(values) == 1 else tuple(values)


def compiled(source):
    program = checked(nvrtc.nvrtcCreateProgram(source, b"wild.cu", 0, [], []))
    code = nvrtc.nvrtcCompileProgram(program, 0, [])[0]
    log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))
    checked(nvrtc.nvrtcGetProgramLog(program, log))
    if code:
        return code, log
    ptx = b" " * checked(nvrtc.nvrtcGetPTXSize(program))
    checked(nvrtc.nvrtcGetPTX(program, ptx))
    return code, ptx


assert driver.cuDeviceGetCount()[0] == Code.CUDA_ERROR_NOT_INITIALIZED
checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
assert driver.cuMemAlloc(4)[0] == Code.CUDA_ERROR_INVALID_CONTEXT
context = checked(driver.cuDevicePrimaryCtxRetain(device))
checked(driver.cuCtxSetCurrent(context))

# The error names the place, for C++ and for PTX that does not compile.
code, log = compiled(b"__global__ void f() { undeclared = 1; }")
assert code == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION
assert b"undeclared" in log
buffer = b" " * 1024
options = [
    driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER,
    driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
]
nonsense = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry f() { nosuch.u32; }\n"
result = driver.cuModuleLoadDataEx(nonsense, 2, options, [buffer, len(buffer)])
assert result[0] == Code.CUDA_ERROR_INVALID_PTX
assert b"4" in buffer, "the log names the line"

_, ptx = compiled(SOURCE)
module = checked(driver.cuModuleLoadData(ptx))
assert driver.cuModuleGetFunction(module, b"nosuch")[0] == Code.CUDA_ERROR_NOT_FOUND
wild = checked(driver.cuModuleGetFunction(module, b"wild"))
arguments = ((0,), (ctypes.c_void_p,))
result = driver.cuLaunchKernel(wild, 1, 1, 1, 2000, 1, 1, 0, 0, arguments, 0)
assert result[0] == Code.CUDA_ERROR_INVALID_VALUE
assert driver.cuMemFree(12345)[0] == Code.CUDA_ERROR_INVALID_VALUE

# A wild pointer: the launch succeeds, the wait does not, and the context is lost.
checked(driver.cuLaunchKernel(wild, 1, 1, 1, 32, 1, 1, 0, 0, arguments, 0))
assert driver.cuCtxSynchronize()[0] == Code.CUDA_ERROR_ILLEGAL_ADDRESS
assert driver.cuMemAlloc(4)[0] == Code.CUDA_ERROR_ILLEGAL_ADDRESS
checked(driver.cuDevicePrimaryCtxReset(device))

# A GPU answers with the same error until the process ends. The software GPU comes back.
code, context = driver.cuDevicePrimaryCtxRetain(device)
if code == Code.CUDA_ERROR_ILLEGAL_ADDRESS:
    print("errors: two logs, five codes, and a context that stays lost")
    raise SystemExit
assert code == Code.CUDA_SUCCESS
checked(driver.cuCtxSetCurrent(context))
module = checked(driver.cuModuleLoadData(ptx))
wild = checked(driver.cuModuleGetFunction(module, b"wild"))
memory = checked(driver.cuMemAlloc(4 * 32))
checked(driver.cuLaunchKernel(wild, 1, 1, 1, 32, 1, 1, 0, 0, ((memory,), (None,)), 0))
host = np.zeros(32, np.int32)
checked(driver.cuMemcpyDtoH(host, memory, host.nbytes))
assert (host == 1).all()
print("errors: two logs, five codes, and a context that came back")
