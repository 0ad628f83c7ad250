"""Two streams joined by an event, page-locked memory, a host function, and the elapsed time."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = b"""
extern "C" __global__ void add(float *to, const float *from, float factor, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        to[i] += factor * from[i];
}
"""


def checked(result):
    code, *values = result
    if code != type(code)(0):
        raise RuntimeError(str(code))
    return values[0] if len(values) == 1 else tuple(values)


def compiled(source):
    program = checked(nvrtc.nvrtcCreateProgram(source, b"add.cu", 0, [], []))
    checked(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_75"]))
    ptx = b" " * checked(nvrtc.nvrtcGetPTXSize(program))
    checked(nvrtc.nvrtcGetPTX(program, ptx))
    return checked(driver.cuModuleLoadData(ptx))


checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device))))
module = compiled(SOURCE)
add = checked(driver.cuModuleGetFunction(module, b"add"))

n = 4096
size = 4 * n
pinned = checked(driver.cuMemHostAlloc(3 * size, 0))
host = np.frombuffer((ctypes.c_float * (3 * n)).from_address(pinned), np.float32).reshape(3, n)
host[0], host[1], host[2] = 1, 10, 0
d_x, d_y = checked(driver.cuMemAlloc(size)), checked(driver.cuMemAlloc(size))

left = checked(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
right = checked(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
start, copied, end = (checked(driver.cuEventCreate(0)) for _ in range(3))

seen = []


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def note(_data):
    seen.append(float(host[2, -1]))


def launch(stream, to, source, factor):
    types = (None, None, ctypes.c_float, ctypes.c_int)
    arguments = ((to, source, factor, n), types)
    checked(driver.cuLaunchKernel(add, 4, 1, 1, 256, 1, 1, 0, stream, arguments, 0))


checked(driver.cuEventRecord(start, left))
checked(driver.cuMemcpyHtoDAsync(d_x, host[0].ctypes.data, size, left))
checked(driver.cuMemcpyHtoDAsync(d_y, host[1].ctypes.data, size, right))
checked(driver.cuEventRecord(copied, right))
checked(driver.cuStreamWaitEvent(left, copied, 0))
launch(left, d_x, d_y, 2.0)  # x = 1 + 2 * 10
launch(left, d_y, d_x, 1.0)  # y = 10 + 21
checked(driver.cuMemcpyDtoHAsync(host[2].ctypes.data, d_y, size, left))
callback = driver.CUhostFn(_ptr=ctypes.addressof(ctypes.c_void_p.from_buffer(note)))
checked(driver.cuLaunchHostFunc(left, callback, 0))
checked(driver.cuEventRecord(end, left))
checked(driver.cuEventSynchronize(end))

assert seen == [31.0]
assert (host[2] == 31).all()
assert checked(driver.cuEventElapsedTime(start, end)) > 0
assert driver.cuStreamQuery(left)[0] == driver.CUresult.CUDA_SUCCESS
for event in (start, copied, end):
    checked(driver.cuEventDestroy(event))
for stream in (left, right):
    checked(driver.cuStreamDestroy(stream))
checked(driver.cuMemFreeHost(pinned))
print("streams_and_events: two streams, one join, 31 everywhere")
