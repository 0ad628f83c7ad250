"""Cellar. State that the driver keeps for each thread of the process, also for native threads.

Between two calls, Python forgets a native thread and its `threading.local`. So the state of a
thread is kept under a mark of the operating system: a value of `pthread_setspecific`. A new thread
has no mark, even if it has the number of an old thread.

True throughout:
- a mark is memory that the C library fills with ones when its thread ends: no Python runs then;
- a mark is freed only after that was seen, so no other mark can have its address before.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# A sigset_t: what sigfillset writes, and nothing behind it.
_MARK_BYTES: Final = 128


def _function(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_library, name)
    function.restype, function.argtypes = result, arguments
    return function


_library = ctypes.CDLL(None)
_key = ctypes.c_uint()
_get = _function("pthread_getspecific", ctypes.c_void_p, ctypes.c_uint)
_set = _function("pthread_setspecific", ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
_allocate = _function("malloc", ctypes.c_void_p, ctypes.c_size_t)
_free = _function("free", None, ctypes.c_void_p)

if _library.pthread_key_create(
    ctypes.byref(_key), ctypes.cast(_library.sigfillset, ctypes.c_void_p)
):
    raise OSError("no thread-local key is left")


class PerThread(threading.local, Generic[T]):
    """`own` is the calling thread's value, made by `make()` at its first use there.

    `values` is an empty dict that only this object uses. The value of an ended thread is dropped
    when the next new thread comes.
    """

    own: T

    def __init__(self, make: Callable[[], T], values: dict[Mark, T]) -> None:
        # Runs once for each life of a thread in Python: for a native thread, at each call.
        mark = _mark_here()
        if mark not in values:
            for each in [each for each in list(values) if each.is_over]:
                values.pop(each, None)
            values[mark] = make()
        self.own = values[mark]


class Mark:
    """A living thread, as a block of memory that the C library fills when the thread ends."""

    __slots__ = ("_first_word", "address")

    def __init__(self, address: int) -> None:
        self.address = address
        self._first_word = ctypes.c_uint64.from_address(address)
        self._first_word.value = 0

    @property
    def is_over(self) -> bool:
        """True once the thread has ended."""
        return self._first_word.value != 0

    def __del__(self, free: Callable[[int], None] = _free) -> None:
        # A living thread will still fill its mark, so only marks of ended threads are freed.
        if self._first_word.value:
            free(self.address)


# The marks of threads that were alive when the latest thread came.
_marks: dict[int, Mark] = {}


def _mark_here() -> Mark:
    address = _get(_key)
    found = _marks.get(address) if address else None
    if found is not None:
        return found
    for each in [each for each in list(_marks.values()) if each.is_over]:
        _marks.pop(each.address, None)
    fresh = Mark(_allocate(_MARK_BYTES))
    _marks[fresh.address] = fresh
    _set(_key, fresh.address)
    return fresh
