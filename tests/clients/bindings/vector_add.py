"""The smallest program: PTX in a string, two copies in, a launch, a copy out."""

from __future__ import annotations

import numpy as np
from cuda.bindings import driver

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %past;
    .reg .u32 %r<5>;
    .reg .u64 %rd<5>;
    .reg .f32 %f<4>;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r0, %r1, %r2;
    ld.param.u32 %r4, [n];
    setp.ge.u32 %past, %r3, %r4;
    @%past ret;
    mul.wide.u32 %rd0, %r3, 4;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    add.u64 %rd1, %rd1, %rd0;
    add.u64 %rd2, %rd2, %rd0;
    add.u64 %rd3, %rd3, %rd0;
    ld.global.f32 %f0, [%rd1];
    ld.global.f32 %f1, [%rd2];
    add.f32 %f2, %f0, %f1;
    st.global.f32 [%rd3], %f2;
    ret;
}
"""


def checked(result):
    code, *values = result
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(driver.cuGetErrorString(code)[1].decode())
    return values[0] if len(values) == 1 else tuple(values)


checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
context = checked(driver.cuDevicePrimaryCtxRetain(device))
checked(driver.cuCtxSetCurrent(context))
module = checked(driver.cuModuleLoadData(PTX))
kernel = checked(driver.cuModuleGetFunction(module, b"vector_add"))

n = 1000
a = np.arange(n, dtype=np.float32)
b = 2 * a
c = np.empty_like(a)
d_a, d_b, d_c = (checked(driver.cuMemAlloc(a.nbytes)) for _ in range(3))
checked(driver.cuMemcpyHtoD(d_a, a, a.nbytes))
checked(driver.cuMemcpyHtoD(d_b, b, b.nbytes))

# Arguments as an array of their addresses, as in the C API.
values = [np.array([int(pointer)], np.uint64) for pointer in (d_a, d_b, d_c)]
values.append(np.array([n], np.uint32))
addresses = np.array([value.ctypes.data for value in values], np.uint64)
checked(driver.cuLaunchKernel(kernel, 8, 1, 1, 128, 1, 1, 0, 0, addresses.ctypes.data, 0))
checked(driver.cuMemcpyDtoH(c, d_c, c.nbytes))
assert (c == 3 * a).all()

for pointer in (d_a, d_b, d_c):
    checked(driver.cuMemFree(pointer))
checked(driver.cuModuleUnload(module))
checked(driver.cuDevicePrimaryCtxRelease(device))
print(f"vector_add: {n} sums")
