"""Cellar. User objects: something of the program's that lives as long as graphs refer to it."""

from __future__ import annotations

import ctypes
from threading import Lock

from cudasync.softgpu.core.handles import new_handle
from cudasync.softgpu.core.results import INVALID_VALUE, DriverFailure

_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class UserObject:
    """A pointer, a native destructor, and a count of references."""

    def __init__(self, pointer: int, destructor: int, references: int) -> None:
        self.handle = new_handle()
        self.references = references
        self._pointer = pointer
        self._destructor = destructor
        self._lock = Lock()

    def retain(self, references: int) -> None:
        """That many references more."""
        with self._lock:
            self._check(references)
            self.references += references

    def release(self, references: int) -> None:
        """That many less; with the last one the destructor is called, here and now."""
        with self._lock:
            self._check(references)
            if references > self.references:
                raise DriverFailure(INVALID_VALUE, "more references than there are")
            self.references -= references
            is_last = not self.references
        if is_last:
            _DESTRUCTOR(self._destructor)(self._pointer)

    def _check(self, references: int) -> None:
        if not 0 < references < 1 << 31 or not self.references:
            raise DriverFailure(INVALID_VALUE, f"{references} references")
