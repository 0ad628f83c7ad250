"""Floor 3, placement. Memory of a program on other devices than the recorded one.

The floor above provides it from its pool. It is ordered and given back as all memory of arrays is.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudasync.engine.hazards.interval_map import Region

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Iterable, Iterator

    from cudasync.driver import Device
    from cudasync.engine.hazards.accesses import Accesses

# Some kernels rely on the alignment of an address; a mirror has the same alignment.
_ALIGNMENT = 256

_provided: list[Callable[[Device, int], Any]] = []


def provide(take: Callable[[Device, int], Any]) -> None:
    """`take(device, size_bytes)` returns memory with a `ptr`, which goes back when it is
    garbage."""
    _provided[:] = [take]


@dataclass(frozen=True, eq=False)
class Anywhere:
    """Memory that was recorded with `device=cs.ANY`, at its place if it is not moved."""

    region: Region
    device: Device
    # The nodes that touch the memory keep it. `arrays` is dead once the program has no array on it.
    memory: Any
    arrays: weakref.ref[Any]

    @property
    def is_temporary(self) -> bool:
        """True if only nodes can still ask for its value."""
        return self.arrays() is None


class AnywhereMap:
    """All such memory of one recording. Its regions do not overlap, because each keeps its
    memory."""

    def __init__(self) -> None:
        self._sorted: list[Anywhere] = []

    def __bool__(self) -> bool:
        return bool(self._sorted)

    def add(self, made: Anywhere) -> None:
        insort(self._sorted, made, key=_start)

    def touched(self, accesses: Accesses) -> Iterator[Anywhere]:
        """The regions that these accesses touch, each once."""
        if not self._sorted:
            return
        seen: set[Anywhere] = set()
        for start, end in (each for part in accesses[0] for each in part):
            at = max(0, bisect_right(self._sorted, start, key=_start) - 1)
            while at < len(self._sorted) and self._sorted[at].region.start < end:
                each = self._sorted[at]
                if start < each.region.end and each not in seen:
                    seen.add(each)
                    yield each
                at += 1


def _start(each: Anywhere) -> int:
    return each.region.start


@dataclass(frozen=True)
class Mirror:
    """Memory of a device that stands for memory of another device."""

    memory: Any
    # The offset of its addresses from the original ones.
    by: int

    @classmethod
    def of(cls, region: Region, device: Device) -> Mirror:
        shift = region.start % _ALIGNMENT
        memory = _provided[0](device, shift + region.end - region.start)
        return cls(memory, memory.ptr + shift - region.start)

    def region(self, region: Region) -> Region:
        """The mirror of these bytes."""
        return Region(region.start + self.by, region.end + self.by)


def lasting(things: Iterable[Any]) -> tuple[Any, ...]:
    """The objects that a node keeps for arrays: for an array on `cs.ANY` its memory, so that the
    node does not count as a holder of the array."""
    return tuple(map(_lasting, things))


def _lasting(thing: Any) -> Any:
    array = getattr(thing, "array", thing)
    memory = getattr(getattr(array, "_allocation", None), "lasting", None)
    return thing if memory is None else memory
