"""A sum in dynamic shared memory and warp shuffles, launched with the occupancy API's advice."""

from __future__ import annotations

import ctypes

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = b"""
extern "C" __global__ void block_sums(const float *data, float *sums, int n)
{
    extern __shared__ float partial[];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += data[i];
    for (int offset = 16; offset; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
        for (int warp = 0; warp < blockDim.x / 32; ++warp) total += partial[warp];
        atomicAdd(sums, total);
        sums[1 + blockIdx.x] = total;
    }
}
"""


def checked(result):
    code, *values = result
    if code != type(code)(0):
        raise RuntimeError(str(code))
    return values[0] if len(values) == 1 else tuple(values)


checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device))))
program = checked(nvrtc.nvrtcCreateProgram(SOURCE, b"block_sums.cu", 0, [], []))
checked(nvrtc.nvrtcCompileProgram(program, 1, [b"-arch=compute_80"]))
ptx = b" " * checked(nvrtc.nvrtcGetPTXSize(program))
checked(nvrtc.nvrtcGetPTX(program, ptx))
library = checked(driver.cuLibraryLoadData(ptx, [], [], 0, [], [], 0))
kernel = checked(driver.cuLibraryGetKernel(library, b"block_sums"))
function = checked(driver.cuKernelGetFunction(kernel))

block = 128
shared = 4 * block // 32
per_multiprocessor = checked(
    driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, block, shared)
)
multiprocessors = checked(
    driver.cuDeviceGetAttribute(
        driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device
    )
)
grid = min(16, per_multiprocessor * multiprocessors)
assert grid > 0
static = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
assert checked(driver.cuFuncGetAttribute(static, function)) == 0

n = 100_000
data = (np.arange(n) % 8).astype(np.float32)
sums = np.zeros(1 + grid, np.float32)
d_data = checked(driver.cuMemAlloc(data.nbytes))
d_sums = checked(driver.cuMemAlloc(sums.nbytes))
checked(driver.cuMemcpyHtoD(d_data, data, data.nbytes))
checked(driver.cuMemsetD8(d_sums, 0, sums.nbytes))

config = driver.CUlaunchConfig()
config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
config.sharedMemBytes = shared
arguments = ((d_data, d_sums, n), (None, None, ctypes.c_int))
checked(driver.cuLaunchKernelEx(config, driver.CUfunction(int(kernel)), arguments, 0))
checked(driver.cuMemcpyDtoH(sums, d_sums, sums.nbytes))
assert sums[0] == data.sum()
assert sums[1:].sum() == sums[0]
checked(driver.cuLibraryUnload(library))
print(f"block_sums: {n} numbers in {grid} blocks")
