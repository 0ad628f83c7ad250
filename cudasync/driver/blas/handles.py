"""Floor 1, BLAS. Products on a stream by cuBLAS, on one device, in one life of its context.

Invariants:
- one thread at a time uses a handle: a call takes it out of the idle handles;
- each stream has its own workspace. Work on a stream is in order, so no two products use a
  workspace at once; and cuBLAS promises the same bits each time if streams share no workspace;
- float32 is computed in float32: the default mode uses TF32 only if the process was started with
  NVIDIA_TF32_OVERRIDE=1.
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

# NVIDIA's recommended workspaces: from compute capability 9.0 on some kernels need more.
_LARGE, _SMALL = 32 << 20, 4 << 20

# By dtype: the function, and the factors of the product and of the result's old value. cuBLAS reads
# the factors on the host, before it returns; with 0 it does not read the result.
_FUNCTIONS: dict[str, tuple[str, Any, Any]] = {
    "f": ("cublasSgemmStridedBatched", c_float(1), c_float(0)),
    "d": ("cublasDgemmStridedBatched", c_double(1), c_double(0)),
}


class Blas:
    """cuBLAS for a device. Raises CudaError if it does not work with that device or driver."""

    def __init__(self, library: Library, device: Device) -> None:
        self.library = library
        self._device = device
        self._workspace_bytes = _LARGE if device.compute_capability[0] >= 9 else _SMALL
        # One handle now, so that a defective library fails here.
        self._idle = deque([self._another()])

    def multiply(self, gemm: Gemm, a: int, b: int, c: int, stream: Stream) -> None:
        """Enqueue the product of the matrices at `a` and `b` into `c`; return at once.

        `stream` is of this device. Raises CudaError if cuBLAS refuses, and for a lost device.
        """
        name, one, zero = _FUNCTIONS[gemm.letter]
        raw = stream.enter()
        workspace = self._workspace_of(stream)
        # cuBLAS uses the device of the current context, whatever the handle.
        self._device.context.enter_anew()
        try:
            handle = self._idle.pop()
        except IndexError:
            handle = self._another()
        library, own = self.library, handle.get()
        try:
            # In this order: setting a stream resets the workspace.
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
            # An earlier loss of the device is reported as such, not as cuBLAS's status.
            with Relaxed():
                code = driver.cuStreamQuery(raw)[0]
            if code and int(code) != _NOT_READY:
                raise failure(code, name)
            raise refused(name, status)

    def _workspace_of(self, stream: Stream) -> int:
        """The address of the stream's workspace, which work on the stream may use from now on.

        It is allocated in the order of the stream, without a wait, and freed once the stream is
        gone and the free delays nobody.
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
            # Of two threads' workspaces, one is freed once it is not in use.
            stream.workspace = found
        return int(found.get())

    def _another(self) -> Owned:
        """A new handle. cuBLAS allocates for it, and may wait for the device. So one handle exists
        before the first product, and further ones only if several threads issue at once."""
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
