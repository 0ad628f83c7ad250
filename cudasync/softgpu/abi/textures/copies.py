"""Cellar. Driver calls that copy to and from arrays of one dimension, by the byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import INVALID_VALUE, DriverFailure
from cudasync.softgpu.core.memory.box_copies import DEVICE, HOST, Box, BoxCopy, End, place_of

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_DEFAULT = 0


def _array(machine: Machine, handle: int, offset: int) -> End:
    array = machine.arrays.copied(handle)
    if array.shape.height or array.shape.depth:
        raise DriverFailure(
            INVALID_VALUE, "an array with a height is copied with cuMemcpy2D or cuMemcpy3D"
        )
    return array.end(offset)


def _linear(kind: int, address: int, size: int) -> End:
    return End(kind, address, pitch=size, height=1)


def copy_ends(
    machine: Machine, target: End, source: End, box: tuple[int, int, int], stream: int
) -> BoxCopy:
    """Enqueue a copy of bytes, rows and slices between two ends; a pageable source is read now."""
    what = Box(source, target, *box)
    memory = machine.memory
    of = place_of(memory, source, what)
    return machine.transfers.copy_box(
        machine.streams.get(stream),
        what,
        place_of(memory, target, what),
        of,
        is_read_now=of.is_pageable,
    )


def _copy(machine: Machine, target: End, source: End, size: int, stream: int) -> BoxCopy:
    return copy_ends(machine, target, source, (size, 1, 1), stream)


def _finish(machine: Machine, copy: BoxCopy) -> None:
    machine.streams.finish(copy)


@export("cuMemcpyHtoAAsync")
def cu_memcpy_htoa_async(
    machine: Machine, array: int, offset: int, host: int, size: int, stream: int
) -> None:
    _copy(machine, _array(machine, array, offset), _linear(HOST, host, size), size, stream)


@export("cuMemcpyAtoHAsync")
def cu_memcpy_atoh_async(
    machine: Machine, host: int, array: int, offset: int, size: int, stream: int
) -> None:
    _copy(machine, _linear(HOST, host, size), _array(machine, array, offset), size, stream)


@export("cuMemcpyHtoA")
def cu_memcpy_htoa(machine: Machine, array: int, offset: int, host: int, size: int) -> None:
    ends = _array(machine, array, offset), _linear(HOST, host, size)
    _finish(machine, _copy(machine, *ends, size, _DEFAULT))


@export("cuMemcpyAtoH")
def cu_memcpy_atoh(machine: Machine, host: int, array: int, offset: int, size: int) -> None:
    ends = _linear(HOST, host, size), _array(machine, array, offset)
    _finish(machine, _copy(machine, *ends, size, _DEFAULT))


@export("cuMemcpyDtoA")
def cu_memcpy_dtoa(machine: Machine, array: int, offset: int, source: int, size: int) -> None:
    ends = _array(machine, array, offset), _linear(DEVICE, source, size)
    _copy(machine, *ends, size, _DEFAULT)


@export("cuMemcpyAtoD")
def cu_memcpy_atod(machine: Machine, target: int, array: int, offset: int, size: int) -> None:
    ends = _linear(DEVICE, target, size), _array(machine, array, offset)
    _copy(machine, *ends, size, _DEFAULT)


@export("cuMemcpyAtoA")
def cu_memcpy_atoa(machine: Machine, target: int, to: int, source: int, of: int, size: int) -> None:
    ends = _array(machine, target, to), _array(machine, source, of)
    _copy(machine, *ends, size, _DEFAULT)
