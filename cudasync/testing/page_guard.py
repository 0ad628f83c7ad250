"""The tower. Guarded memory of the host: tells which line of Python touches it.

A page that nobody may access raises a signal at the first access. Its handler opens the page again,
so the access goes on as if nothing had happened, and calls Python on the same thread: the calling
frame is the one that accesses the page. Pages have 4 KiB or more. So new NumPy arrays get pages
that no other data shares (`pages_of_their_own`), and only their memory can be guarded. This
excludes arrays that were made before, or on another thread, and memory that is not NumPy's.

A system call does not raise the signal: `os.write(1, array)` fails with EFAULT in a guarded page.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cudasync.engine.hazards.variable import resolve_one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_PAGE: Final = mmap.PAGESIZE
# <sys/mman.h> and <signal.h> of Linux.
_PROT_NONE, _PROT_READ_WRITE = 0, 3
_SA_SIGINFO, _SA_NODEFER = 0x4, 0x40000000
# So many guards are known that were opened last: another thread may have touched them before.
_REMEMBERED = 100
# The address is behind three integers and padding, in every 64-bit Linux.
_AT_ADDRESS: Final = 16
# Functions of NumPy's C API, by their place in its table: stable since NumPy 1.22 (NEP 49).
_SET_HANDLER = 304
_NAME = b"cudasync_pages"

_libc = ctypes.CDLL(None, use_errno=True)
_mprotect = _libc.mprotect
_mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_aligned = _libc.memalign
_aligned.argtypes, _aligned.restype = (ctypes.c_size_t, ctypes.c_size_t), ctypes.c_void_p
_usable = _libc.malloc_usable_size
_usable.argtypes, _usable.restype = (ctypes.c_void_p,), ctypes.c_size_t
_free = _libc.free
_free.argtypes = (ctypes.c_void_p,)

_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Allocate2 = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_Resize = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Act = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """`struct sigaction`."""

    _fields_ = (
        ("act", ctypes.c_void_p),
        ("mask", ctypes.c_uint8 * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Handler(ctypes.Structure):
    """`PyDataMem_Handler`: how NumPy gets memory for the data of arrays."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


class _Pages:
    """NumPy's functions for memory, changed so that no block shares a page with other data."""

    def __init__(self) -> None:
        # C code refers to these for as long as the process lives. NumPy's own function frees the
        # blocks: arrays die in the middle of an exception, where no Python may run.
        self._functions = (
            _Allocate(lambda _, size: _block(size)),
            _Allocate2(lambda _, n, size: _block(n * size, zeros=True)),
            _Resize(lambda _, block, size: _resized(block, size)),
        )
        self._handler: _Handler | None = None
        self._capsule: Any = None

    def take_over(self) -> object:
        """Let this thread's new arrays have such memory; returns the handler so far."""
        if self._handler is None:
            before = _set_handler(None)
            usual = _Handler.from_address(_pointer(before, b"mem_handler"))
            _set_handler(before)
            functions = [ctypes.cast(each, ctypes.c_void_p) for each in self._functions]
            self._handler = _Handler(_NAME, usual.version, usual.context, *functions, usual.free)
            self._capsule = _capsule(ctypes.addressof(self._handler), b"mem_handler")
        return _set_handler(self._capsule)


def _block(size: int, *, zeros: bool = False) -> int | None:
    block: int | None = _aligned(_PAGE, max(_PAGE, -(-size // _PAGE) * _PAGE))
    if block is not None and zeros:
        ctypes.memset(block, 0, size)
    return block


def _resized(block: int | None, size: int) -> int | None:
    new = _block(size)
    if block is not None and new is not None:
        ctypes.memmove(new, block, min(size, _usable(block)))
        _free(block)
    return new


def _core() -> Any:
    """NumPy's module with its C API, under the name of this release."""
    name = "numpy._core._multiarray_umath"
    return sys.modules[name if name in sys.modules else "numpy.core._multiarray_umath"]


def _set_handler(handler: object) -> object:
    """Make `handler` NumPy's (None: NumPy's default); returns the one before."""
    table = ctypes.cast(_pointer(_core()._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    call = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(table[_SET_HANDLER] or 0)
    before: object = call(None if handler is None else id(handler))
    return before


def _pointer(capsule: object, name: bytes | None) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.argtypes, get.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
    found: int = get(capsule, name)
    return found


def _capsule(address: int, name: bytes) -> object:
    make = ctypes.pythonapi.PyCapsule_New
    make.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
    make.restype = ctypes.py_object
    return make(address, name, None)


_PAGES = _Pages()


@contextmanager
def pages_of_their_own() -> Iterator[None]:
    """Arrays that this thread makes inside have pages of their own; a small one takes 4 KiB."""
    before = _PAGES.take_over()
    try:
        yield
    finally:
        _set_handler(before)


class Guard:
    """Bytes of an array that nobody may touch, until they are opened or touched."""

    __slots__ = ("begin", "end", "is_open")

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end, self.is_open = begin, end, False

    @property
    def pages(self) -> tuple[int, int]:
        """The address of its first page, and the bytes of all its pages."""
        first = self.begin - self.begin % _PAGE
        return first, -(-(self.end - first) // _PAGE) * _PAGE

    def meets(self, other: Guard) -> bool:
        """True if the two have a page in common."""
        (first, size), (its_first, its_size) = self.pages, other.pages
        return first < its_first + its_size and its_first < first + size


class Guards:
    """All guarded bytes of the process; `touched(guard, frame)` is called for each that is touched.

    It runs on the thread that touches them, in the middle of any C code: it notes what happened,
    and takes no lock. `frame` is the frame of Python that called this code; None on a thread
    without one.
    """

    def __init__(self, touched: Callable[[Guard, FrameType | None], None]) -> None:
        self._touched = touched
        self._closed: list[Guard] = []
        self._opened: deque[Guard] = deque(maxlen=_REMEMBERED)
        self._process = os.getpid()
        self._before = _Action()
        # Kept for good: a signal may be under way on another thread.
        self._act = _Act(self._on_signal)
        _KEPT.append(self)
        # On the thread's own stack: the one that `faulthandler` sets aside is too small for Python.
        action = _Action(flags=_SA_SIGINFO | _SA_NODEFER)
        action.act = ctypes.cast(self._act, ctypes.c_void_p)
        _sigaction(action, self._before)

    @staticmethod
    def can_guard(array: object) -> bool:
        """True for an array, or a view of one, that was made in `pages_of_their_own`."""
        if not isinstance(array, np.ndarray) or not array.size:
            return False
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        name: str | None = _core().get_handler_name(owner) if owner.base is None else None
        return name is not None and name.encode() == _NAME

    def close(self, array: np.ndarray[Any, Any]) -> Guard:
        """Guard the bytes of this array, of which `can_guard` is true, and of its gaps."""
        guard = Guard(*resolve_one(array, "guarded"))
        self._closed.append(guard)
        _allow(guard, _PROT_NONE)
        return guard

    def open(self, guard: Guard) -> None:
        """Let anybody access these bytes, and those of other guards on the same pages."""
        for each in [each for each in list(self._closed) if each.meets(guard)]:
            each.is_open = True
            self._opened.append(each)
            with suppress(ValueError):
                self._closed.remove(each)
            _allow(each, _PROT_READ_WRITE)

    def end(self) -> None:
        """Open everything, and put the signal's former handler back."""
        for each in list(self._closed):
            self.open(each)
        _sigaction(self._before, None)

    def _on_signal(self, _: int, info: int, __: int) -> None:
        address = ctypes.c_uint64.from_address(info + _AT_ADDRESS).value
        page = Guard(address, address + 1)
        hit = [each for each in list(self._closed) if each.meets(page)]
        if not hit and not self._is_open_by_now(page):
            # A real fault: the instruction raises it again, for whoever handled it before.
            _sigaction(self._before, None)
            return
        for each in hit:
            self.open(each)
            is_inside = each.begin <= address < each.end
            if is_inside and os.getpid() == self._process:
                self._touched(each, sys._getframe().f_back)

    def _is_open_by_now(self, page: Guard) -> bool:
        """True if another thread has opened this page since the present one touched it."""
        if not any(each.meets(page) for each in list(self._opened)):
            return False
        try:
            _allow(page, _PROT_READ_WRITE)
        except OSError:
            # The array was freed, and its pages are gone.
            return False
        return True


_KEPT: list[Guards] = []


def _allow(guard: Guard, access: int) -> None:
    first, size = guard.pages
    if _mprotect(first, size, access):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _sigaction(action: _Action, before: _Action | None) -> None:
    told = None if before is None else ctypes.byref(before)
    if _libc.sigaction(signal.SIGSEGV, ctypes.byref(action), told):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
