"""Two programs linked into one, from separately compiled C++, and a program from PTX."""

from __future__ import annotations

import numpy as np
from cuda.core import (
    Device,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Linker,
    LinkerOptions,
    Program,
    ProgramOptions,
    launch,
)

MAIN = r"""
extern __device__ int weigh(int value);
extern "C" __global__ void each(int *data) { data[threadIdx.x] = weigh(data[threadIdx.x]); }
"""
HELPER = r"""
__device__ int weight = 3;
__device__ int weigh(int value) { return weight * value + 1; }
"""

device = Device()
device.set_current()
stream = device.create_stream()
arch = f"sm_{device.arch}"
options = ProgramOptions(relocatable_device_code=True, arch=arch)
parts = [Program(text, "c++", options=options).compile("ptx") for text in (MAIN, HELPER)]
linked = Linker(*parts, options=LinkerOptions(arch=arch)).link("cubin")

memory = LegacyPinnedMemoryResource().allocate(4 * 32)
data = np.from_dlpack(memory).view(np.int32)
data[:] = np.arange(32)
launch(stream, LaunchConfig(grid=1, block=32), linked.get_kernel("each"), memory)
stream.sync()
assert (data == 3 * np.arange(32) + 1).all()

ptx = r"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry seven(.param .u64 out)
{
    .reg .u64 %rd_out;
    ld.param.u64 %rd_out, [out];
    st.global.u32 [%rd_out], 7;
    ret;
}
"""
seven = Program(ptx, "ptx", options=ProgramOptions(arch=arch)).compile("cubin").get_kernel("seven")
launch(stream, LaunchConfig(grid=1, block=1), seven, memory)
stream.sync()
assert data[0] == 7
stream.close()
print("linking: two programs, and one from PTX")
