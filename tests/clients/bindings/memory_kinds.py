"""Every kind of memory once: pitched, managed, mapped, registered, and stream-ordered."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = b"""
extern "C" __global__ void increment(int *data, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += 1;
}
"""


def checked(result):
    code, *values = result
    if code != type(code)(0):
        raise RuntimeError(str(code))
    return values[0] if len(values) == 1 else tuple(values)


def view(address, count):
    return np.frombuffer((ctypes.c_int * count).from_address(int(address)), np.int32)


checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device))))
program = checked(nvrtc.nvrtcCreateProgram(SOURCE, b"increment.cu", 0, [], []))
checked(nvrtc.nvrtcCompileProgram(program, 0, []))
ptx = b" " * checked(nvrtc.nvrtcGetPTXSize(program))
checked(nvrtc.nvrtcGetPTX(program, ptx))
kernel = checked(driver.cuModuleGetFunction(checked(driver.cuModuleLoadData(ptx)), b"increment"))
stream = checked(driver.cuStreamCreate(0))


def increment(address, count):
    arguments = ((int(address), count), (ctypes.c_void_p, ctypes.c_int))
    checked(driver.cuLaunchKernel(kernel, 1, 1, 1, count, 1, 1, 0, stream, arguments, 0))


# A picture of 5 rows with a pitch, there and back.
rows, columns = 5, 33
picture = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
pitched, pitch = checked(driver.cuMemAllocPitch(4 * columns, rows, 4))
assert pitch >= 4 * columns
there = driver.CUDA_MEMCPY2D()
there.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
there.srcHost, there.srcPitch = picture.ctypes.data, picture.strides[0]
there.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
there.dstDevice, there.dstPitch = pitched, pitch
there.WidthInBytes, there.Height = 4 * columns, rows
checked(driver.cuMemcpy2D(there))
increment(int(pitched) + pitch, columns)  # the second row
returned = np.zeros_like(picture)
back = driver.CUDA_MEMCPY2D()
back.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
back.srcDevice, back.srcPitch = pitched, pitch
back.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
back.dstHost, back.dstPitch = returned.ctypes.data, returned.strides[0]
back.WidthInBytes, back.Height = 4 * columns, rows
checked(driver.cuStreamSynchronize(stream))
checked(driver.cuMemcpy2D(back))
picture[1] += 1
assert (returned == picture).all()
checked(driver.cuMemFree(pitched))

# Managed: one address for both sides.
everywhere = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
managed = checked(driver.cuMemAllocManaged(64, everywhere))
view(managed, 16)[:] = 7
increment(managed, 16)
checked(driver.cuStreamSynchronize(stream))
assert (view(managed, 16) == 8).all()
checked(driver.cuMemFree(managed))

# Mapped: host memory that kernels see.
mapped = checked(driver.cuMemHostAlloc(64, driver.CU_MEMHOSTALLOC_DEVICEMAP))
view(mapped, 16)[:] = 1
increment(checked(driver.cuMemHostGetDevicePointer(mapped, 0)), 16)
checked(driver.cuStreamSynchronize(stream))
assert (view(mapped, 16) == 2).all()
checked(driver.cuMemFreeHost(mapped))

# Registered: memory that NumPy allocated.
mine = np.full(1024, 3, np.int32)
checked(driver.cuMemHostRegister(mine, mine.nbytes, driver.CU_MEMHOSTREGISTER_DEVICEMAP))
increment(checked(driver.cuMemHostGetDevicePointer(mine, 0)), 1024)
checked(driver.cuStreamSynchronize(stream))
assert (mine == 4).all()
checked(driver.cuMemHostUnregister(mine))

# Stream-ordered: allocated, used and freed without a wait.
result = np.zeros(256, np.int32)
ordered = checked(driver.cuMemAllocAsync(result.nbytes, stream))
checked(driver.cuMemsetD32Async(ordered, 41, 256, stream))
increment(ordered, 256)
checked(driver.cuMemcpyDtoHAsync(result, ordered, result.nbytes, stream))
checked(driver.cuMemFreeAsync(ordered, stream))
checked(driver.cuStreamSynchronize(stream))
assert (result == 42).all()

free, total = checked(driver.cuMemGetInfo())
assert 0 < free <= total
checked(driver.cuStreamDestroy(stream))
print("memory_kinds: pitched, managed, mapped, registered, stream-ordered")
