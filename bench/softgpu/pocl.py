"""The kernels of bench_softgpu on PoCL, which runs OpenCL C on the processor.

This translates the CUDA C++ of kernels.cu section by section, word by word, so that both
compilers get the same algorithm. It needs pyopencl and PoCL's driver (on Debian the package
pocl-opencl-icd).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.softgpu import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.softgpu.work import Work

# Fused products and fast division as in NVRTC, and no more, because results are compared.
OPTIONS = ["-cl-mad-enable", "-cl-std=CL1.2"]

_WORDS = {
    r'extern "C" \{\n|\n\}\n$': "",
    r"__global__": "kernel",
    r"__device__": "",
    r"__shared__": "local",
    r"__syncthreads\(\)": "barrier(CLK_LOCAL_MEM_FENCE)",
    # An array's size must be a constant, and a C const is none.
    r"const int (\w+) = (\d+);": r"enum { \1 = \2 };",
    # `half` is a type in OpenCL.
    r"\bhalf\b": "half_",
    r"\b(sqrt|rsqrt|exp|log|fabs)f\(": r"\1(",
    r"make_float4\(": "(float4)(",
    r"atomicAdd\(": "atomic_add(",
    r"(threadIdx|blockIdx|blockDim|gridDim)\.([xyz])": lambda found: (
        f"{_PLACES[found[1]]}({'xyz'.index(found[2])})"
    ),
}
_PLACES = {
    "threadIdx": "get_local_id",
    "blockIdx": "get_group_id",
    "blockDim": "get_local_size",
    "gridDim": "get_num_groups",
}


def opencl(name: str) -> str:
    """One kernel in OpenCL C."""
    text = kernels.section(name)
    for pattern, word in _WORDS.items():
        text = re.sub(pattern, word, text)  # type: ignore[arg-type]
    # Pointers in a kernel's parameters point to global memory.
    return re.sub(
        r"(?<=kernel void )[^)]*",
        lambda found: re.sub(r"(\w[\w ]*\*)", r"global \1", found[0]),
        text,
    )


class PoCL:
    """PoCL's processor, and the kernels compiled for it. ImportError if there is none."""

    def __init__(self) -> None:
        import pyopencl

        self._cl = pyopencl
        try:
            platforms = pyopencl.get_platforms()
        except pyopencl.Error as error:
            raise ImportError(f"no OpenCL driver is installed: {error}") from None
        found = [each for each in platforms if each.name == "Portable Computing Language"]
        if not found:
            raise ImportError("no OpenCL driver there is PoCL")
        self.version = found[0].version.split()[3]
        self._context = pyopencl.Context(found[0].get_devices()[:1])
        self._queue = pyopencl.CommandQueue(self._context)

    def launcher(self, work: Work) -> Callable[[], None]:
        """A launch of the kernel of `work` on its arrays, in place, and the wait for it."""
        cl, queue = self._cl, self._queue
        block = kernels.BLOCKS[work.kernel]
        threads = tuple(many * size for many, size in zip(work.grid, block, strict=True))
        program = cl.Program(self._context, opencl(work.kernel)).build(OPTIONS)
        kernel = getattr(program, work.kernel)
        buffers = {id(each): self._buffer(each) for each in _arrays(work.arguments)}
        kernel.set_args(*(buffers.get(id(each), each) for each in work.arguments))
        read = cl.map_flags.READ

        def action() -> None:
            work.clear()
            cl.enqueue_nd_range_kernel(queue, kernel, threads, block)
            for array in work.outputs:
                # Nothing is copied, but OpenCL requires a notice that the host reads. The maker of
                # a buffer must keep it alive: a kernel does not keep its arguments.
                buffer = buffers[id(array)]
                mapped, _ = cl.enqueue_map_buffer(queue, buffer, read, 0, array.shape, array.dtype)
                mapped.base.release(queue)
            queue.finish()

        return action

    def _buffer(self, array: np.ndarray) -> Any:
        flags = self._cl.mem_flags.READ_WRITE | self._cl.mem_flags.USE_HOST_PTR
        return self._cl.Buffer(self._context, flags, hostbuf=array)


def _arrays(values: Any) -> list[np.ndarray]:
    return [each for each in values if isinstance(each, np.ndarray)]
