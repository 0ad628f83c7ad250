"""Cellar. What the driver keeps for each thread of the process, whether Python knows it or not.

Python forgets a thread that is not its own between two calls, and `threading.local` with it. So
what belongs to a thread is kept under a mark of the operating system's: a value of
`pthread_setspecific`, which a new thread does not have, also where it got the number of an old one.

True throughout:
- a mark is memory that the C library fills with ones when its thread ends: no Python runs then;
- it is freed once that was seen, so no other mark can lie at the same address before.
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
    raise OSError("no key is left for what threads keep")


class PerThread(threading.local, Generic[T]):
    """`own` is what the calling thread has, made by `make()` at its first use there.

    `values` is an empty dict, of this object alone. What an ended thread had goes when the next
    thread comes.
    """

    own: T

    def __init__(self, make: Callable[[], T], values: dict[Mark, T]) -> None:
        # Once for each life of a thread in Python: for a native thread, at each of its calls.
        mark = _mark_here()
        if mark not in values:
            for each in [each for each in list(values) if each.is_over]:
                values.pop(each, None)
            values[mark] = make()
        self.own = values[mark]


class Mark:
    """A thread, as long as it lives."""

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
        # One whose thread lives is that thread's to fill.
        if self._first_word.value:
            free(self.address)


# Those of threads that were alive when the last one came.
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
