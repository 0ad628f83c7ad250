"""Cellar. Handles: integers that stand for objects and look like pointers.

A handle is never given out twice in a process, so a stale one can not name a newer object, and
one of another kind or out of thin air is simply not in the table: every misuse is an error
code, never a crash.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

from cudasync.softgpu.core.driver_types.result_codes import INVALID_HANDLE, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

# An address range that Linux gives to nobody's heap or stack, so that a handle that is
# mistaken for a pointer is seen at once. next() on it is one C call: no two threads get the same.
_numbers = count(0x0000_5C00_0000_1000, 0x40)


def new_handle() -> int:
    """A handle that was never given out before."""
    return next(_numbers)


class Handles(Generic[T]):
    """The live objects of one kind, by handle."""

    def __init__(self, kind: str, *, code: int = INVALID_HANDLE) -> None:
        self._kind = kind
        self._code = code
        # Public for who looks up at every call: only `get`, and then it is None for a bad handle.
        self.objects: dict[int, T] = {}

    def add(self, handle: int, item: T) -> None:
        """Let `handle` stand for `item` from now on."""
        self.objects[handle] = item

    def get(self, handle: int) -> T:
        """The object; DriverFailure if the handle names none of this kind."""
        item = self.objects.get(handle)
        if item is None:
            raise DriverFailure(self._code, f"{handle:#x} is not a live {self._kind}")
        return item

    def remove(self, handle: int) -> T:
        """Take the object out; DriverFailure as with `get`, so a second removal is refused."""
        item = self.objects.pop(handle, None)
        if item is None:
            raise DriverFailure(self._code, f"{handle:#x} is not a live {self._kind}")
        return item

    def discard(self, handle: int) -> None:
        """Take the object out if it is there."""
        self.objects.pop(handle, None)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self.objects.values()))
