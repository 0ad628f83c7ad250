"""CUDA C++ through NVRTC: a template by its name expression, and a __constant__ set by the host."""

from __future__ import annotations

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = b"""
__constant__ float coefficients[3];

template <typename T, int Steps>
__global__ void polynomial(const T *x, T *y, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    T value = x[i];
    #pragma unroll
    for (int step = 0; step < Steps; ++step)
        value = (coefficients[2] * value + coefficients[1]) * value + coefficients[0];
    y[i] = value;
}
"""


def checked(result):
    code, *values = result
    if code != type(code)(0):
        raise RuntimeError(str(code))
    return values[0] if len(values) == 1 else tuple(values)


def text(size, read, program):
    buffer = b" " * checked(size(program))
    checked(read(program, buffer))
    return buffer


checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
context = checked(driver.cuDevicePrimaryCtxRetain(device))
checked(driver.cuCtxSetCurrent(context))
attribute = driver.CUdevice_attribute
major = checked(
    driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
)
minor = checked(
    driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
)

program = checked(nvrtc.nvrtcCreateProgram(SOURCE, b"polynomial.cu", 0, [], []))
name = b"polynomial<double, 2>"
checked(nvrtc.nvrtcAddNameExpression(program, name))
options = [f"--gpu-architecture=compute_{major}{minor}".encode(), b"--fmad=false"]
if nvrtc.nvrtcCompileProgram(program, len(options), options)[0]:
    raise SystemExit(text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program))
ptx = text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
module = checked(driver.cuModuleLoadData(ptx))
kernel = checked(
    driver.cuModuleGetFunction(module, checked(nvrtc.nvrtcGetLoweredName(program, name)))
)

coefficients = np.array([0.5, -0.25, 0.125], np.float32)
address, size = checked(driver.cuModuleGetGlobal(module, b"coefficients"))
assert size == coefficients.nbytes
checked(driver.cuMemcpyHtoD(address, coefficients, size))

x = np.linspace(-1, 1, 501)
y = np.empty_like(x)
d_x = checked(driver.cuMemAlloc(x.nbytes))
d_y = checked(driver.cuMemAlloc(y.nbytes))
checked(driver.cuMemcpyHtoD(d_x, x, x.nbytes))
# Arguments may also be values with their C types, which the bindings pack.
arguments = ((d_x, d_y, len(x)), (None, None, np.ctypeslib.ctypes.c_uint))
checked(driver.cuLaunchKernel(kernel, 4, 1, 1, 128, 1, 1, 0, 0, arguments, 0))
checked(driver.cuMemcpyDtoH(y, d_y, y.nbytes))

expected = x
for _ in range(2):
    expected = (0.125 * expected - 0.25) * expected + 0.5
assert np.allclose(y, expected, rtol=1e-14)
checked(driver.cuMemFree(d_x))
checked(driver.cuMemFree(d_y))
print(f"nvrtc_templates: {name.decode()} at {len(x)} points")
