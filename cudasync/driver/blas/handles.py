"""Floor 1, BLAS. Products on a stream by cuBLAS, on one device, in one life of its context.

True throughout:
- a handle is used by one thread at a time: it is taken out of the idle ones for a call;
- a stream has a workspace of its own. What is on a stream is in order, so no two products use a
  workspace at once; and cuBLAS promises the same bits each time where streams share none;
- float32 is computed in float32: the default mode takes TF32 only where the process was started
  with NVIDIA_TF32_OVERRIDE=1.
"""

from __future__ import annotations

from collections import deque
from ctypes import byref, c_double, c_float, c_void_p
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.blas.library import refused
from cudasync.driver.ownership.handles import Owned
from cudasync.driver.result import failure
from cudasync.driver.streams.open_captures import Relaxed

if TYPE_CHECKING:
    from cudasync.driver.blas.gemm import Gemm
    from cudasync.driver.blas.library import Library
    from cudasync.driver.device import Device
    from cudasync.driver.streams.stream import Stream

_DEFAULT_MATH = 0
_NOT_READY = 600

# What NVIDIA recommends, by compute capability: from 9.0 on there are kernels that need more.
_LARGE, _SMALL = 32 << 20, 4 << 20

# By dtype: the function, and the factors of the product and of what the result held before. cuBLAS
# reads them on the host, before it returns; with 0 it does not read the result.
_FUNCTIONS: dict[str, tuple[str, Any, Any]] = {
    "f": ("cublasSgemmStridedBatched", c_float(1), c_float(0)),
    "d": ("cublasDgemmStridedBatched", c_double(1), c_double(0)),
}


class Blas:
    """cuBLAS for a device. Raises CudaError where it does not work with that device or driver."""

    def __init__(self, library: Library, device: Device) -> None:
        self.library = library
        self._device = device
        self._workspace_bytes = _LARGE if device.compute_capability[0] >= 9 else _SMALL
        # One at once, so that what is wrong with the library is known now.
        self._idle = deque([self._another()])

    def multiply(self, gemm: Gemm, a: int, b: int, c: int, stream: Stream) -> None:
        """Enqueue the product of what is at the addresses `a` and `b`, to `c`; return at once.

        `stream` is of this device. Raises CudaError for what cuBLAS refuses, and for a lost device.
        """
        name, one, zero = _FUNCTIONS[gemm.letter]
        raw = stream.enter()
        workspace = self._workspace_of(stream)
        # cuBLAS works on the device whose context is current, whatever the handle.
        self._device.context.enter_anew()
        try:
            handle = self._idle.pop()
        except IndexError:
            handle = self._another()
        library, own = self.library, handle.get()
        try:
            # In this order: a new stream takes the workspace away.
            library.call("cublasSetStream_v2", own, int(raw))
            library.call("cublasSetWorkspace_v2", own, workspace, self._workspace_bytes)
            status = library.status(
                name, own, gemm.a.operation, gemm.b.operation, gemm.m, gemm.n, gemm.k, byref(one),
                a, gemm.a.leading, gemm.a.stride, b, gemm.b.leading, gemm.b.stride, byref(zero),
                c, gemm.leading, gemm.stride, gemm.count,
            )  # fmt: skip
        finally:
            self._idle.append(handle)
        if status:
            # A device that was lost earlier is told of as such, and not as what cuBLAS makes of it.
            code = driver.cuStreamQuery(raw)[0]
            if code and int(code) != _NOT_READY:
                raise failure(code, name)
            raise refused(name, status)

    def _workspace_of(self, stream: Stream) -> int:
        """The address of the stream's workspace, which work on it may use from now on.

        It is allocated in the order of the stream, which waits for nothing; and freed when the
        stream is gone, where that makes nobody wait.
        """
        found = stream.workspace
        if found is None or found.is_closed:
            context, raw = self._device.context, stream.enter()
            ptr = context.allocate(
                "cuMemAllocAsync",
                driver.cuMemAllocAsync,
                self._workspace_bytes,
                raw,
                is_placed=True,
            )
            found = Owned(context, ptr, driver.cuMemFree, noun="workspace", blocking=True)
            # Should two threads come together, one of the two is freed once it is not in use.
            stream.workspace = found
        return int(found.get())

    def _another(self) -> Owned:
        """A new handle. cuBLAS allocates for it, and may wait for the device: so there is one
        before the first product, and more only where several threads issue at once."""
        context, library = self._device.context, self.library
        made = c_void_p()
        context.enter_anew()
        with Relaxed():
            library.call("cublasCreate_v2", byref(made))
        handle = Owned(
            context,
            made.value,
            lambda raw: (library.status("cublasDestroy_v2", raw),),
            noun="cuBLAS handle",
            blocking=True,
        )
        library.call("cublasSetMathMode", made, _DEFAULT_MATH)
        return handle

    def __repr__(self) -> str:
        return repr(self.library)
