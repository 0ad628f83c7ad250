"""Cellar. Handles: integers that stand for objects and look like pointers.

A process never gives out a handle twice, so a stale handle cannot name a newer object. A handle of
another kind, or an invented one, is not in the table. So every misuse is an error code, never a
crash.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

from cudasync.softgpu.core.driver_types.result_codes import INVALID_HANDLE, DriverFailure

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

# Linux puts no heap or stack into this address range, so that a handle mistaken for a pointer
# is noticed at once. next() is one C call: no two threads get the same number.
_numbers = count(0x0000_5C00_0000_1000, 0x40)


def new_handle() -> int:
    """A new handle, never given out before."""
    return next(_numbers)


class Handles(Generic[T]):
    """The live objects of one kind, by handle."""

    def __init__(self, kind: str, *, code: int = INVALID_HANDLE) -> None:
        self._kind = kind
        self._code = code
        # Public for hot look-ups at every call, which use `dict.get`: None for a bad handle.
        self.objects: dict[int, T] = {}

    def add(self, handle: int, item: T) -> None:
        """Let `handle` stand for `item` from now on."""
        self.objects[handle] = item

    def get(self, handle: int) -> T:
        """The object of a handle; DriverFailure if the handle names none of this kind."""
        item = self.objects.get(handle)
        if item is None:
            raise DriverFailure(self._code, f"{handle:#x} is not a live {self._kind}")
        return item

    def remove(self, handle: int) -> T:
        """Remove and return the object; DriverFailure as in `get`, also at a second removal."""
        item = self.objects.pop(handle, None)
        if item is None:
            raise DriverFailure(self._code, f"{handle:#x} is not a live {self._kind}")
        return item

    def discard(self, handle: int) -> None:
        """Remove the object if it is there."""
        self.objects.pop(handle, None)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self.objects.values()))
