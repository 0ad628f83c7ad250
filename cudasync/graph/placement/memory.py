"""Floor 3, placement. Memory that a program has on other devices than where it was recorded.

The floor above, which has a pool of it, provides it: what is taken here is ordered and given back
as all memory of arrays is.
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

# What kernels take for granted of an address, some of them: it is the same in a mirror.
_ALIGNMENT = 256

_provided: list[Callable[[Device, int], Any]] = []


def provide(take: Callable[[Device, int], Any]) -> None:
    """`take(device, size_bytes)` gives memory with a `ptr`, which goes back when it is garbage."""
    _provided[:] = [take]


@dataclass(frozen=True, eq=False)
class Anywhere:
    """Memory that was recorded with `device=cs.ANY`: where it is if it is not moved."""

    region: Region
    device: Device
    # Kept by the nodes that touch it; and what is gone once no array of the program is on it.
    memory: Any
    arrays: weakref.ref[Any]

    @property
    def is_temporary(self) -> bool:
        """True if nobody can ask for what it holds any more, but nodes."""
        return self.arrays() is None


class AnywhereMap:
    """All of it in one recording: apart from each other, since each keeps its memory."""

    def __init__(self) -> None:
        self._sorted: list[Anywhere] = []

    def __bool__(self) -> bool:
        return bool(self._sorted)

    def add(self, made: Anywhere) -> None:
        insort(self._sorted, made, key=_start)

    def touched(self, accesses: Accesses) -> Iterator[Anywhere]:
        """What these accesses touch, each once."""
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
    """Memory of a device that stands for some of another one."""

    memory: Any
    # How much further on it is.
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
    """What to keep of arrays for a node: of those that may be anywhere the memory, so that the node
    does not count as one who has the array."""
    return tuple(map(_lasting, things))


def _lasting(thing: Any) -> Any:
    array = getattr(thing, "array", thing)
    memory = getattr(getattr(array, "_allocation", None), "lasting", None)
    return thing if memory is None else memory
