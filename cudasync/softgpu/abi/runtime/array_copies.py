"""Cellar, abi. Runtime API, Memory Management: copies to and from arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.runtime.table import runtime_function
from cudasync.softgpu.abi.textures.copies import copy_ends
from cudasync.softgpu.core.graphs.boxes import UNIFIED, BoxCopy, End
from cudasync.softgpu.core.results import INVALID_VALUE, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.core.machine import Machine

_DEFAULT: Final = 0
_INVALID_PITCH: Final = 12
_INVALID_DIRECTION: Final = 21
_DIRECTIONS: Final = range(5)


def _rows(address: int, pitch: int, width: int) -> End:
    if pitch < width:
        raise DriverFailure(_INVALID_PITCH, f"the pitch {pitch} is less than a row")
    return End(UNIFIED, address, pitch=pitch)


def _check(direction: int) -> None:
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
    _check(direction)
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
    _check(direction)
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
    _check(direction)
    to, of = machine.arrays.copied(target), machine.arrays.copied(source)
    return copy_ends(machine, to.end(to_x, to_y), of.end(of_x, of_y), (width, height, 1), _DEFAULT)


def _stretches(row_bytes: int, x: int, y: int, size: int) -> list[tuple[int, int, int, int]]:
    """Bytes that go on from row to row, as boxes: column, row, width and height of each."""
    found = []
    if x and size:
        width = min(size, row_bytes - x)
        found.append((x, y, width, 1))
        y, size = y + 1, size - width
    if size >= row_bytes:
        found.append((0, y, row_bytes, size // row_bytes))
    if size % row_bytes:
        found.append((0, y + size // row_bytes, size % row_bytes, 1))
    return found


def _linear_to_array(
    machine: Machine,
    array: int,
    x: int,
    y: int,
    source: int,
    size: int,
    direction: int,
    stream: int = _DEFAULT,
) -> BoxCopy:
    made: list[BoxCopy] = []
    for column, row, width, height in _of_array(machine, array, x, y, size):
        box = (column, row, source, width, width, height, direction, stream)
        made.append(_to_array(machine, array, *box))
        source += width * height
    return made[-1]


def _linear_from_array(
    machine: Machine,
    target: int,
    array: int,
    x: int,
    y: int,
    size: int,
    direction: int,
    stream: int = _DEFAULT,
) -> BoxCopy:
    made: list[BoxCopy] = []
    for column, row, width, height in _of_array(machine, array, x, y, size):
        box = (array, column, row, width, height, direction, stream)
        made.append(_from_array(machine, target, width, *box))
        target += width * height
    return made[-1]


def _of_array(
    machine: Machine, array: int, x: int, y: int, size: int
) -> list[tuple[int, int, int, int]]:
    """The boxes of a copy without rows of its own; INVALID_VALUE where it leaves the array."""
    shape = machine.arrays.copied(array).shape
    if (
        not size
        or x >= shape.row_bytes
        or y * shape.row_bytes + x + size > (shape.row_bytes * max(1, shape.rows))
    ):
        raise DriverFailure(
            INVALID_VALUE, f"{size} bytes at column {x} of row {y} are not in the array"
        )
    return _stretches(shape.row_bytes, x, y, size)


def _enter(name: str, kinds: str, call: Callable[..., BoxCopy], *, has_async: bool) -> None:
    """A function that waits for its copy, and one on a stream."""

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
_enter(
    "cudaMemcpyToArray",
    "pzzpzi",
    _linear_to_array,
    has_async=True,
)
_enter(
    "cudaMemcpyFromArray",
    "ppzzzi",
    _linear_from_array,
    has_async=True,
)
