"""The same burst through other libraries, written as programs of theirs write it.

Their launches use one stream in order, on the memory of the raw launches. Neither library finds an
order. Each raises if its library is not installed, or does not work with the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bench.launches import bursts

if TYPE_CHECKING:
    from collections.abc import Callable

    import cudasync as cs
    from bench.launches.rig import Rig

    Calls = list[Callable[[], object]]


class Peer(Protocol):
    """The interface of each library for bench_launch."""

    name: str
    package: str

    @staticmethod
    def calls(rig: Rig) -> Calls:
        """The launches of the burst, ready to be called."""


class CudaCore:
    """cuda.core: buffers, and a configuration made once."""

    name = "cuda.core.launch(stream, config, kernel, ...)"
    package = "cuda-core"

    @staticmethod
    def calls(rig: Rig) -> Calls:
        from cuda.core import Buffer, Device, LaunchConfig, ObjectCode, Stream, launch

        Device(rig.stream.device.ordinal).set_current()
        stream = Stream.from_handle(int(rig.stream.handle))
        kernel = ObjectCode.from_ptx(bursts.PTX.encode()).get_kernel("add_to")
        grid, block = rig.shape
        config = LaunchConfig(grid=grid, block=block)

        def of(buffer: cs.DeviceBuffer) -> Buffer:
            return Buffer.from_handle(int(buffer.ptr), buffer.size_bytes)

        def called(source: Buffer, target: Buffer) -> Callable[[], object]:
            return lambda: launch(stream, config, kernel, source, target)

        return [called(of(source), of(target)) for source, target in rig.raw_pointers()]


def numba_cuda() -> Any:
    """The module `numba.cuda`. In this process NumPy has again a name that its import looks up.

    NumPy 2.5 has no `row_stack`, which was another name of `vstack`.
    """
    if not hasattr(np, "row_stack"):
        np.row_stack = np.vstack  # type: ignore[attr-defined]
    from numba import cuda

    return cuda


class NumbaCuda:
    """numba-cuda: the kernel in Python, compiled beforehand; the whole call is made each time."""

    name = "numba-cuda, kernel[grid, block, stream](...)"
    package = "numba-cuda"

    @staticmethod
    def calls(rig: Rig) -> Calls:
        cuda = numba_cuda()

        @cuda.jit("void(uint32[::1], uint32[::1])")
        def add_to(source, target):
            index = cuda.grid(1)
            target[index] += source[index]

        stream = cuda.external_stream(int(rig.stream.handle))
        (grid,), (block,) = rig.shape

        def of(buffer: cs.DeviceBuffer) -> object:
            return cuda.as_cuda_array(Words(buffer), sync=False)

        def called(source: object, target: object) -> Callable[[], object]:
            return lambda: add_to[grid, block, stream](source, target)

        return [called(of(source), of(target)) for source, target in rig.raw_pointers()]


class Words:
    """A buffer of 32-bit words in the form that numba accepts for foreign memory."""

    def __init__(self, buffer: cs.DeviceBuffer) -> None:
        self.buffer = buffer
        self.__cuda_array_interface__ = {
            "shape": (buffer.size_bytes // 4,),
            "typestr": "<u4",
            "data": (int(buffer.ptr), False),
            "version": 3,
        }


PEERS: tuple[type[Peer], ...] = (CudaCore, NumbaCuda)
