"""The runtime API beside the driver API: the runtime's memory and streams, the driver's kernel.

C++ programs are ported this way: cudaMalloc, cudaMemcpyAsync, cudaStream and cudaEvent stay, and
cuLaunchKernel replaces the compiler's <<<>>>.
"""

from __future__ import annotations

import ctypes

import numpy as np
from cuda.bindings import driver, runtime

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry twice(.param .u64 data, .param .u32 count)
{
    .reg .pred %beyond;
    .reg .b32 %r<5>;
    .reg .f32 %value;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [data];
    ld.param.u32 %r0, [count];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    setp.ge.u32 %beyond, %r4, %r0;
    @%beyond ret;
    mad.wide.u32 %rd1, %r4, 4, %rd0;
    ld.global.f32 %value, [%rd1];
    add.f32 %value, %value, %value;
    st.global.f32 [%rd1], %value;
    ret;
}
"""
COUNT = 1000
TO_DEVICE = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
TO_HOST = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost


def checked(result):
    """The values of a call that must succeed, in either API."""
    code, *values = result
    assert int(code) == 0, code
    return values[0] if len(values) == 1 else values


def main():
    assert checked(runtime.cudaGetDeviceCount()) >= 1
    checked(runtime.cudaSetDevice(0))
    checked(runtime.cudaFree(0))
    assert int(checked(driver.cuCtxGetDevice())) == checked(runtime.cudaGetDevice()) == 0
    kernel = checked(driver.cuModuleGetFunction(checked(driver.cuModuleLoadData(PTX)), b"twice"))

    stream = checked(runtime.cudaStreamCreate())
    begin, end = checked(runtime.cudaEventCreate()), checked(runtime.cudaEventCreate())
    values = np.arange(COUNT, dtype=np.float32)
    memory = checked(runtime.cudaMalloc(values.nbytes))
    checked(runtime.cudaEventRecord(begin, stream))
    checked(runtime.cudaMemcpyAsync(memory, values.ctypes.data, values.nbytes, TO_DEVICE, stream))
    arguments = ((memory, COUNT), (ctypes.c_void_p, ctypes.c_uint))
    checked(
        driver.cuLaunchKernel(
            kernel, (COUNT + 127) // 128, 1, 1, 128, 1, 1, 0, int(stream), arguments, 0
        )
    )
    checked(runtime.cudaEventRecord(end, stream))
    checked(runtime.cudaEventSynchronize(end))
    assert checked(runtime.cudaEventElapsedTime(begin, end)) > 0
    found = np.empty_like(values)
    checked(runtime.cudaMemcpy(found.ctypes.data, memory, values.nbytes, TO_HOST))
    assert (found == 2 * values).all()

    checked(runtime.cudaMemset(memory, 0, values.nbytes))
    checked(runtime.cudaDeviceSynchronize())
    checked(runtime.cudaMemcpy(found.ctypes.data, memory, values.nbytes, TO_HOST))
    assert not found.any()

    (code,) = runtime.cudaStreamQuery(stream)
    assert code == runtime.cudaError_t.cudaSuccess
    code, _ = runtime.cudaMalloc(1 << 60)
    assert code == runtime.cudaError_t.cudaErrorMemoryAllocation
    assert runtime.cudaGetLastError()[0] == code
    assert runtime.cudaGetLastError()[0] == runtime.cudaError_t.cudaSuccess
    for event in (begin, end):
        checked(runtime.cudaEventDestroy(event))
    checked(runtime.cudaStreamDestroy(stream))
    checked(runtime.cudaFree(memory))
    print(f"runtime_calls: {COUNT} values doubled")


if __name__ == "__main__":
    main()
