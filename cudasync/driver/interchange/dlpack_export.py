"""Floor 1. Export by DLPack: lends memory to other libraries, and detects its return.

The borrower calls the deleter on any thread, in any state: with or without the GIL, with an
exception propagating, while the interpreter ends. Python code there would lose the exception at
best. So the deleter is native: libc's `sigfillset`, which only writes a pattern over the start of
the tensor's structure. A later call that lends or allocates finds the pattern, and releases the
memory.

Invariants:
- a structure is libc's memory, freed only here, so a borrower may outlive the interpreter;
- lent memory lives until its structure is returned, or out of reach: in an unused capsule that only
  this table refers to;
- only the holder of a loan's token reads or frees its structure, so nobody reads what another
  thread has freed.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from cudasync.driver.interchange import capsules, dlpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

_libc = ctypes.CDLL(None)
_allocate = _libc.calloc
_allocate.restype, _allocate.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
_free = _libc.free
_free.restype, _free.argtypes = None, (ctypes.c_void_p,)
_DELETER = ctypes.cast(_libc.sigfillset, ctypes.c_void_p).value

# sizeof(sigset_t), with glibc and musl. How much of it is written depends on the library.
_SET_BYTES = 128
_HEADER_BYTES = 256
_Words = ctypes.c_uint64 * (_SET_BYTES // 8)


def _written() -> list[tuple[int, int]]:
    scratch = _Words()
    _libc.sigfillset(ctypes.byref(scratch))
    return [(index, word) for index, word in enumerate(scratch) if word]


# The pattern of the deleter: words by their index. Once all of them are there, the deleter has
# finished. The first word is the data pointer or the version, and neither has that value.
_PATTERN = _written()


class Loan:
    """One lent tensor: its structure, its capsule, and the owner, kept until its return."""

    __slots__ = ("_token", "_words", "address", "capsule", "name", "owner")

    def __init__(self, address: int, owner: object, name: bytes) -> None:
        self.address = address
        self.owner = owner
        self.name = name
        self.capsule: Any = capsules.make_capsule(address, name)
        self._words = _Words.from_address(address)
        # A list of one: list.pop is one C call, so one of several threads gets the token.
        self._token: list[None] = [None]

    def claim(self) -> bool:
        """Take the token; False if another thread has it, or has ended the loan."""
        try:
            self._token.pop()
        except IndexError:
            return False
        return True

    def release(self) -> None:
        """Put the token back."""
        self._token.append(None)

    @property
    def is_over(self) -> bool:
        """True once the borrower has returned it, or if no consumer can take it any more.

        The caller holds the token.
        """
        words = self._words
        if all(words[index] == word for index, word in _PATTERN):
            return True
        if self.capsule is None:
            return False
        # The references come first. Nobody gets at a capsule that only this loan refers to, so its
        # name is final. Read the other way round, a consumer could take the tensor and drop the
        # capsule in between.
        is_alone = self.references() == _ALONE
        if capsules.name_of(self.capsule) != self.name:
            # A consumer took the tensor: from now on only the deleter counts.
            self.capsule = None
            return False
        return is_alone

    def references(self) -> int:
        """The number of references to the capsule, including this call's."""
        return sys.getrefcount(self.capsule)


# By the address of the structure. A loan leaves the table before its structure is freed, so an
# address names one loan at a time.
_loans: dict[int, Loan] = {}
# Each loan once, in rotation, so that each call of `reclaim` checks only a few. Loans and not their
# addresses: an address may already belong to the next loan.
LENT: deque[Loan] = deque()


def lend(
    owner: object,
    *,
    ptr: int,
    shape: Sequence[int],
    strides: Sequence[int],
    dtype: np.dtype[Any],
    device: tuple[int, int],
    flags: int,
    is_versioned: bool,
) -> Any:
    """A capsule with memory of `owner`, which is kept alive until the return.

    `strides` count elements, `device` is DLPack's type and number. Raises BufferError for a dtype
    that DLPack does not have.
    """
    kind = dlpack.element_type(dtype)
    count = len(shape)
    address = _allocate(1, _HEADER_BYTES + 16 * count)
    if not address:
        raise MemoryError("no memory for a DLPack tensor")
    numbers = (ctypes.c_int64 * (2 * count)).from_address(address + _HEADER_BYTES)
    numbers[:] = [*shape, *strides]
    pointer = ctypes.POINTER(ctypes.c_int64)
    managed: Any
    if is_versioned:
        managed = dlpack.DLManagedTensorVersioned.from_address(address)
        managed.version = dlpack.DLPackVersion(dlpack.MAJOR, dlpack.MINOR)
        managed.flags = flags
        name = capsules.VERSIONED
    else:
        managed = dlpack.DLManagedTensor.from_address(address)
        name = capsules.PLAIN
    managed.deleter = _DELETER
    tensor = managed.dl_tensor
    tensor.data = ptr
    tensor.device = dlpack.DLDevice(*device)
    tensor.ndim = count
    tensor.dtype = dlpack.DLDataType(kind.code, kind.bits, 1)
    tensor.shape = ctypes.cast(address + _HEADER_BYTES, pointer)
    tensor.strides = ctypes.cast(address + _HEADER_BYTES + 8 * count, pointer)
    loan = Loan(address, owner, name)
    capsule = loan.capsule
    _loans[address] = loan
    LENT.append(loan)
    return capsule


def has_loans() -> bool:
    """True if memory is lent, or may be."""
    return bool(LENT)


def reclaim(most: int = 4) -> None:
    """Release returned memory; checks up to `most` loans, the least recently checked first."""
    for _ in range(min(most, len(LENT))):
        try:
            loan = LENT.popleft()
        except IndexError:
            return
        if not loan.claim():
            # Taken back: whoever did so has freed the structure.
            continue
        if loan.is_over:
            _loans.pop(loan.address, None)
            _free(loan.address)
            continue
        loan.release()
        if _loans.get(loan.address) is loan:
            LENT.append(loan)
        else:
            # It was taken back while this thread had the token.
            _free_once(loan)


def take_back(address: int) -> object | None:
    """End the loan of the structure at `address`, which came back in a capsule; return its owner.

    None if it is not our loan.
    """
    # dict.pop is one C call: one of two threads ends the loan.
    loan = _loans.pop(address, None)
    if loan is None:
        return None
    # A thread that has the token frees the structure after its look, as `reclaim` does.
    _free_once(loan)
    return loan.owner


def _free_once(loan: Loan) -> None:
    if loan.claim():
        _free(loan.address)


_ALONE = Loan(ctypes.addressof(_Words()), None, capsules.PLAIN).references()
