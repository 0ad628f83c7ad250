"""Floor 4. Tracks the bytes of an allocation that a stream was handed and has not given back.

On these bytes, and on that stream, the driver layer may be used freely. The engine orders all other
uses of arrays, so uses that bypass the engine are refused, except inside of an op.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.operators.values import outline
from cudasync.driver.streams.chosen_stream import as_stream
from cudasync.engine import current
from cudasync.locks import Lock

if TYPE_CHECKING:
    from typing import TypeAlias

    from cudasync.array.array import Array
    from cudasync.driver import Stream

    Part: TypeAlias = tuple[int, int]

# 0 and 1 are two handles of the legacy default stream.
_LEGACY = 1
# Held while the handed parts of any allocation change, which is rare and quick. Reentrant, because
# a finaliser of the program may run in between.
_changing = Lock()


class Handed:
    """The bytes of one allocation that each stream was handed, by the stream's handle.

    Parts are disjoint and sorted. A list is replaced under `_changing`, never changed, so that
    threads may read it without a lock.
    """

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: dict[int, list[Part]] = {}

    @property
    def is_out(self) -> bool:
        """True if some stream was handed a part of it, and has not given the part back."""
        return bool(self.parts)

    def add(self, start: int, end: int, handle: int) -> None:
        """[start, end) was handed to the stream."""
        with _changing:
            self._add(start, end, handle)

    def _add(self, start: int, end: int, handle: int) -> None:
        low, high = start, end
        apart: list[Part] = []
        for part in self.parts.get(handle, ()):
            if part[1] < low or part[0] > high:
                apart.append(part)
            else:
                low, high = min(low, part[0]), max(high, part[1])
        self.parts[handle] = sorted([*apart, (low, high)])

    def remove(self, start: int, end: int) -> None:
        """[start, end) is the engine's again."""
        with _changing:
            self._remove(start, end)

    def _remove(self, start: int, end: int) -> None:
        for handle in list(self.parts):
            parts = self.parts[handle]
            cut = [(low, min(high, start)) for low, high in parts if low < start]
            cut += [(max(low, end), high) for low, high in parts if high > end]
            if cut:
                self.parts[handle] = cut
            else:
                del self.parts[handle]

    def covers(self, start: int, end: int, handle: int) -> bool:
        """True if the stream was handed all of [start, end)."""
        return any(low <= start and end <= high for low, high in self.parts.get(handle, ()))


def note_handed(things: tuple[Any, ...], to: Stream) -> None:
    """Allow any use of the arrays among `things` on the stream."""
    for thing in things:
        memory = getattr(thing, "_allocation", None)
        if memory is not None:
            memory.handed.add(*thing.region, to.handle or _LEGACY)


def note_taken(things: tuple[Any, ...]) -> None:
    """Return the arrays among `things` to the engine."""
    for thing in things:
        memory = getattr(thing, "_allocation", None)
        if memory is not None:
            memory.handed.remove(*thing.region)


def refuse_unless_handed(array: Array, stream: Any) -> None:
    """Raise ValueError where `array` would be used on a stream without the engine's knowledge.

    Inside an op's function this never raises: the op declared its accesses.
    """
    if current.is_in_op() or not array.nbytes:
        return
    on = as_stream(stream, array.device)
    if not array._allocation.handed.covers(*array.region, on.handle or _LEGACY):
        raise ValueError(
            f"{outline(array)} belongs to the engine, which does not see work of the driver "
            f"layer: call kernel[grid, block](...) or cs.copy, or do this in an op, "
            f"engine.push(..., device=). For your own stream, call cs.hand_over(x, to=stream) "
            f"before and cs.take_over(x, after=stream) after"
        )
