"""Cellar. Stream memory operations: waits for a word in memory, and writes of a word.

A wait reads memory each time it is tried, and yields while the comparison fails. A kernel, another
stream or the host may write the word, so such a wait alone is no deadlock.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.streams.commands import Command, Step, Touched

if TYPE_CHECKING:
    from cudasync.softgpu.core.memory.copy_commands import Place
    from cudasync.softgpu.core.streams.streams import Stream

# CUstreamWaitValue_flags.
_GREATER_EQUAL: Final = 0
_EQUAL: Final = 1
_AND: Final = 2
_NOR: Final = 3
_COMPARISON_BITS: Final = 3


class WaitValue(Command):
    """cuStreamWaitValue32 and 64."""

    __slots__ = ("comparison", "place", "size_bytes", "value")

    is_access = False

    def __init__(
        self, stream: Stream, place: Place, value: int, flags: int, size_bytes: int
    ) -> None:
        super().__init__(stream)
        self.place = place
        self.value = value
        self.comparison = flags & _COMPARISON_BITS
        self.size_bytes = size_bytes

    def run(self) -> Step:
        self.place.check(self.size_bytes, "a wait for a value")
        return Step.DONE if self.holds(_word(self.place, self.size_bytes).value) else Step.YIELDED

    def holds(self, word: int) -> bool:
        """The comparison of cuStreamWaitValue, for a word just read."""
        mask = (1 << 8 * self.size_bytes) - 1
        match self.comparison:
            case c if c == _GREATER_EQUAL:
                # Signed difference, so that counters may wrap.
                return (word - self.value) & mask < (mask + 1) // 2
            case c if c == _EQUAL:
                return word == self.value
            case c if c == _AND:
                return bool(word & self.value)
            case _:
                return bool(~(word | self.value) & mask)

    def is_over(self) -> bool:
        """True if it would not wait now, or if its memory is gone."""
        allocation = self.place.allocation
        if allocation is not None and not allocation.is_live:
            return True
        return self.holds(_word(self.place, self.size_bytes).value)

    def touched(self) -> Touched:
        return Touched([(self.place.address, self.place.address + self.size_bytes)])

    @property
    def needs_commands(self) -> bool:
        allocation = self.place.allocation
        if allocation is None or allocation.kind.is_host or allocation.kind.is_managed:
            return False
        return not self.is_over()

    def describe(self) -> str:
        return f"a wait for a value at {self.place.address:#x}"

    def awaits(self) -> str:
        word = _word(self.place, self.size_bytes).value
        condition = {
            _GREATER_EQUAL: f"at least {self.value}",
            _EQUAL: f"{self.value}",
            _AND: f"a value that shares a set bit with {self.value:#x}",
            _NOR: f"a value that shares a zero bit with {self.value:#x}",
        }[self.comparison]
        allocation = self.place.allocation
        where = "" if allocation is None else f" ({allocation.describe()})"
        return (
            f"the {8 * self.size_bytes}-bit word at {self.place.address:#x} to become "
            f"{condition}; it is {word}{where}"
        )


class WriteValue(Command):
    """cuStreamWriteValue32 and 64."""

    __slots__ = ("place", "size_bytes", "value")

    def __init__(self, stream: Stream, place: Place, value: int, size_bytes: int) -> None:
        super().__init__(stream)
        self.place = place
        self.value = value
        self.size_bytes = size_bytes

    def run(self) -> Step:
        self.place.check(self.size_bytes, "a write of a value")
        _word(self.place, self.size_bytes).value = self.value
        return Step.DONE

    def touched(self) -> Touched:
        return Touched((), [(self.place.address, self.place.address + self.size_bytes)])

    def describe(self) -> str:
        return f"a write of a value at {self.place.address:#x}"


def _word(place: Place, size_bytes: int) -> ctypes.c_uint32 | ctypes.c_uint64:
    if size_bytes == 4:
        return ctypes.c_uint32.from_address(place.address)
    return ctypes.c_uint64.from_address(place.address)
