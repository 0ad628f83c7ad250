"""Cellar, abi. Runtime API, Memory Management: copies of a number of bytes to and from arrays.

CUDA has deprecated these calls, but programs still use them. Bytes go through the rows of an array
in order, from the given place. Each piece within a row is a copy of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.runtime.arrays.array_copies import check_direction
from cudasync.softgpu.abi.runtime.table import runtime_function
from cudasync.softgpu.abi.textures.copies import copy_ends
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.memory.box_copies import UNIFIED, End

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.box_copies import BoxCopy

_DEFAULT: Final = 0


class _Bytes:
    """Linear memory."""

    def __init__(self, address: int) -> None:
        self._address = address

    def room(self, _at: int) -> int | None:
        """The number of contiguous bytes from there on; None if there is no limit."""
        return None

    def end(self, at: int, size: int) -> End:
        """One end of a copy at that offset."""
        return End(UNIFIED, self._address + at, pitch=size, height=1)


class _Array:
    """An array from a given place on."""

    def __init__(self, machine: Machine, handle: int, x_bytes: int, y: int) -> None:
        self._array = machine.arrays.copied(handle)
        shape = self._array.shape
        self._row_bytes = shape.width * shape.texel_bytes
        if x_bytes >= self._row_bytes:
            raise DriverFailure(
                INVALID_VALUE, f"byte {x_bytes} is not in a row of {self._row_bytes}"
            )
        self._start = y * self._row_bytes + x_bytes

    def room(self, at: int) -> int | None:
        """The number of bytes that are left of the row there."""
        return self._row_bytes - (self._start + at) % self._row_bytes

    def end(self, at: int, _size: int) -> End:
        """One end of a copy at that offset."""
        y, x_bytes = divmod(self._start + at, self._row_bytes)
        return self._array.end(x_bytes, y)


def _pieces(
    target: _Bytes | _Array, source: _Bytes | _Array, size: int
) -> Iterator[tuple[int, int]]:
    """The start and the length of each piece."""
    at = 0
    while at < size:
        rooms = [size - at, target.room(at), source.room(at)]
        length = min(room for room in rooms if room is not None)
        yield at, length
        at += length


def _copy(
    machine: Machine,
    target: _Bytes | _Array,
    source: _Bytes | _Array,
    size: int,
    direction: int,
    stream: int,
) -> BoxCopy | None:
    """Enqueue all pieces; return the last, which completes after the others."""
    check_direction(direction)
    last = None
    for at, length in _pieces(target, source, size):
        ends = target.end(at, length), source.end(at, length)
        last = copy_ends(machine, *ends, (length, 1, 1), stream)
    return last


def _finish(machine: Machine, copy: BoxCopy | None) -> None:
    if copy is not None:
        machine.streams.finish(copy)


@runtime_function("cudaMemcpyToArrayAsync", "pzzpzip")
def cuda_memcpy_to_array_async(
    machine: Machine, array: int, x: int, y: int, source: int, size: int, kind: int, stream: int
) -> None:
    _copy(machine, _Array(machine, array, x, y), _Bytes(source), size, kind, stream)


@runtime_function("cudaMemcpyToArray", "pzzpzi")
def cuda_memcpy_to_array(
    machine: Machine, array: int, x: int, y: int, source: int, size: int, kind: int
) -> None:
    to, of = _Array(machine, array, x, y), _Bytes(source)
    _finish(machine, _copy(machine, to, of, size, kind, _DEFAULT))


@runtime_function("cudaMemcpyFromArrayAsync", "ppzzzip")
def cuda_memcpy_from_array_async(
    machine: Machine, target: int, array: int, x: int, y: int, size: int, kind: int, stream: int
) -> None:
    _copy(machine, _Bytes(target), _Array(machine, array, x, y), size, kind, stream)


@runtime_function("cudaMemcpyFromArray", "ppzzzi")
def cuda_memcpy_from_array(
    machine: Machine, target: int, array: int, x: int, y: int, size: int, kind: int
) -> None:
    to, of = _Bytes(target), _Array(machine, array, x, y)
    _finish(machine, _copy(machine, to, of, size, kind, _DEFAULT))


@runtime_function("cudaMemcpyArrayToArray", "pzzpzzzi")
def cuda_memcpy_array_to_array(
    machine: Machine,
    target: int,
    to_x: int,
    to_y: int,
    source: int,
    of_x: int,
    of_y: int,
    size: int,
    kind: int,
) -> None:
    to, of = _Array(machine, target, to_x, to_y), _Array(machine, source, of_x, of_y)
    _finish(machine, _copy(machine, to, of, size, kind, _DEFAULT))
