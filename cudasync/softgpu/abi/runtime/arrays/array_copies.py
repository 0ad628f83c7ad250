"""Cellar, abi. Runtime API, Memory Management: copies to and from arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.runtime.table import runtime_function
from cudasync.softgpu.abi.textures.copies import copy_ends
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.memory.box_copies import UNIFIED, BoxCopy, End

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.machine import Machine

_DEFAULT: Final = 0
_INVALID_PITCH: Final = 12
_INVALID_DIRECTION: Final = 21
_DIRECTIONS: Final = range(5)


def _rows(address: int, pitch: int, width: int) -> End:
    if pitch < width:
        raise DriverFailure(_INVALID_PITCH, f"the pitch {pitch} is less than the bytes of a row")
    return End(UNIFIED, address, pitch=pitch)


def check_direction(direction: int) -> None:
    """Refuse a number that is not a cudaMemcpyKind; the addresses decide the actual direction."""
    if direction not in _DIRECTIONS:
        raise DriverFailure(_INVALID_DIRECTION, f"there is no direction {direction}")


def _to_array(
    machine: Machine,
    array: int,
    x: int,
    y: int,
    source: int,
    pitch: int,
    width: int,
    height: int,
    direction: int,
    stream: int = _DEFAULT,
) -> BoxCopy:
    check_direction(direction)
    target = machine.arrays.copied(array).end(x, y)
    return copy_ends(machine, target, _rows(source, pitch, width), (width, height, 1), stream)


def _from_array(
    machine: Machine,
    target: int,
    pitch: int,
    array: int,
    x: int,
    y: int,
    width: int,
    height: int,
    direction: int,
    stream: int = _DEFAULT,
) -> BoxCopy:
    check_direction(direction)
    source = machine.arrays.copied(array).end(x, y)
    return copy_ends(machine, _rows(target, pitch, width), source, (width, height, 1), stream)


def _between(
    machine: Machine,
    target: int,
    to_x: int,
    to_y: int,
    source: int,
    of_x: int,
    of_y: int,
    width: int,
    height: int,
    direction: int,
) -> BoxCopy:
    check_direction(direction)
    to, of = machine.arrays.copied(target), machine.arrays.copied(source)
    return copy_ends(machine, to.end(to_x, to_y), of.end(of_x, of_y), (width, height, 1), _DEFAULT)


def _enter(name: str, kinds: str, call: Callable[..., BoxCopy], *, has_async: bool) -> None:
    """Enter a function that waits for its copy, and its form on a stream."""

    def waiting(machine: Machine, *given: int) -> None:
        machine.streams.finish(call(machine, *given))

    def enqueueing(machine: Machine, *given: int) -> None:
        call(machine, *given)

    runtime_function(name, kinds)(waiting)
    if has_async:
        runtime_function(f"{name}Async", f"{kinds}p")(enqueueing)


_enter(
    "cudaMemcpy2DToArray",
    "pzzpzzzi",
    _to_array,
    has_async=True,
)
_enter(
    "cudaMemcpy2DFromArray",
    "pzpzzzzi",
    _from_array,
    has_async=True,
)
_enter(
    "cudaMemcpy2DArrayToArray",
    "pzzpzzzzi",
    _between,
    has_async=False,
)
