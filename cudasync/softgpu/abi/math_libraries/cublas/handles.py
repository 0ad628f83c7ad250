"""Cellar, abi. Handles of cuBLAS: the stream of each, the place of its scalars, and scalars."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cudasync.softgpu.abi.marshalling.pointers import need, put_i32, put_u64
from cudasync.softgpu.abi.math_libraries.stand_in import Codes, LibraryFailure
from cudasync.softgpu.core.driver_types.result_codes import (
    STREAM_CAPTURE_UNSUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.library_calls import enqueue_routine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cudasync.softgpu.abi.math_libraries.operands import Matrix, Vector
    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

# cublasStatus_t.
NOT_INITIALIZED: Final = 1
INVALID_VALUE: Final = 7
CODES: Final = Codes(NOT_INITIALIZED, INVALID_VALUE, 13, 15)
_ON_HOST, _ON_DEVICE = 0, 1
# CUBLAS_VERSION of the replaced library: CuPy looks up features by it.
_VERSIONS: Final = {12: 120900, 13: 130000}


@dataclass(slots=True)
class Handle:
    """The settings of a handle."""

    stream: int = 0
    pointer_mode: int = _ON_HOST
    math_mode: int = 0


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar argument of a call: its value, or its address in device memory."""

    address: int
    dtype: np.dtype[Any]
    value: Any = None

    def get(self) -> Any:
        """The number; call this when the routine executes."""
        if self.value is not None:
            return self.value
        return _number_at(self.address, self.dtype)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The device memory that the scalar occupies."""
        return [] if self.value is not None else [(self.address, self.dtype.itemsize)]

    @property
    def is_zero(self) -> bool:
        """True if the scalar is known to be 0."""
        return self.value is not None and not self.value


@dataclass(slots=True)
class Library:
    """The handles in existence."""

    table: FunctionTable
    major: int
    handles: dict[int, Handle] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(0xB1A5_0000, 16))

    def get(self, handle: int) -> Handle:
        """The handle with that number; CUBLAS_STATUS_NOT_INITIALIZED if it does not exist."""
        found = self.handles.get(handle)
        if found is None:
            raise LibraryFailure(NOT_INITIALIZED, f"there is no cuBLAS handle {handle:#x}")
        return found

    def scalar(self, handle: int, address: int, dtype: np.dtype[Any]) -> Scalar:
        """The scalar that a call points to."""
        if not address:
            raise LibraryFailure(INVALID_VALUE, "a pointer to a scalar is null")
        if self.get(handle).pointer_mode == _ON_DEVICE:
            return Scalar(address, dtype)
        need(address, dtype.itemsize)
        return Scalar(address, dtype, _number_at(address, dtype))

    def run(
        self,
        handle: int,
        name: str,
        function: Callable[[], None],
        *,
        reads: Sequence[Matrix | Vector],
        writes: Sequence[Matrix | Vector],
        scalars: Sequence[Scalar] = (),
        is_open: bool = False,
    ) -> None:
        """Enqueue a routine on the handle's stream."""
        machine = self.table.machine
        enqueue_routine(
            machine,
            machine.streams.get(self.get(handle).stream),
            name,
            function,
            reads=[*(each.span for each in reads), *(s for each in scalars for s in each.spans)],
            writes=[each.span for each in writes],
            is_open=is_open,
        )

    def answer(
        self,
        handle: int,
        name: str,
        compute: Callable[[], Any],
        *,
        reads: Sequence[Vector],
        target: int,
        dtype: np.dtype[Any],
    ) -> None:
        """Enqueue a routine that computes one number; wait if the result goes to the host."""
        if not target:
            raise LibraryFailure(INVALID_VALUE, "the pointer to the result is null")
        machine, found = self.table.machine, self.get(handle)
        stream = machine.streams.get(found.stream)
        is_host = found.pointer_mode == _ON_HOST
        if is_host:
            need(target, dtype.itemsize)
            if stream.capture is not None:
                raise DriverFailure(
                    STREAM_CAPTURE_UNSUPPORTED, f"{name} cannot wait for a result in a capture"
                )

        def run() -> None:
            data = np.asarray(compute()).astype(dtype).tobytes()
            ctypes.memmove(target, data, len(data))

        spans = [each.span for each in reads]
        writes = [] if is_host else [(target, dtype.itemsize)]
        command = enqueue_routine(machine, stream, name, run, reads=spans, writes=writes)
        if is_host:
            machine.streams.finish(command)

    # The functions of handles

    def create(self, handle: int) -> None:
        need(handle)
        number = next(self._numbers)
        self.handles[number] = Handle()
        put_u64(handle, number)

    def destroy(self, handle: int) -> None:
        self.get(handle)
        del self.handles[handle]

    def version(self, _handle: int, version: int) -> None:
        put_i32(version, _VERSIONS[self.major])

    def set_stream(self, handle: int, stream: int) -> None:
        self.get(handle).stream = stream

    def get_stream(self, handle: int, stream: int) -> None:
        put_u64(stream, self.get(handle).stream)

    def set_pointer_mode(self, handle: int, mode: int) -> None:
        if mode not in (_ON_HOST, _ON_DEVICE):
            raise LibraryFailure(INVALID_VALUE, f"there is no pointer mode {mode}")
        self.get(handle).pointer_mode = mode

    def get_pointer_mode(self, handle: int, mode: int) -> None:
        put_i32(mode, self.get(handle).pointer_mode)

    def set_math_mode(self, handle: int, mode: int) -> None:
        self.get(handle).math_mode = mode

    def get_math_mode(self, handle: int, mode: int) -> None:
        put_i32(mode, self.get(handle).math_mode)


def _number_at(address: int, dtype: np.dtype[Any]) -> Any:
    return np.frombuffer(ctypes.string_at(address, dtype.itemsize), dtype)[0]
