"""Floor 1. A tensor of another library, taken out of its DLPack capsule.

Nothing is taken before everything about it is known to be good: what is refused stays in its
capsule, whose owner ends it. What was taken is given back once, by calling its deleter.
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

from cudasync.driver.interchange import capsules, dlpack
from cudasync.driver.interchange.protocols import DLPACK_CUDA, DLPACK_CUDA_MANAGED
from cudasync.driver.memory.strides import contiguous_strides
from cudasync.driver.probe import forked

if TYPE_CHECKING:
    import numpy as np

_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

# More than NumPy has; a larger number is no number of dimensions but garbage.
_MOST_DIMENSIONS = 64

SHARED_DEVICES = (DLPACK_CUDA, DLPACK_CUDA_MANAGED)


class BorrowedTensor:
    """Device memory that is another library's until `give_back`. Strides are in bytes."""

    __slots__ = (
        "_cell",
        "_deleter",
        "address",
        "device_type",
        "dtype",
        "is_read_only",
        "ordinal",
        "ptr",
        "shape",
        "strides",
    )

    def __init__(self, address: int, tensor: Any, deleter: int | None, *, flags: int) -> None:
        self.address = address
        self.device_type: int = tensor.device.device_type
        self.ordinal: int = tensor.device.device_id
        if self.device_type not in SHARED_DEVICES:
            raise BufferError(f"a tensor of DLPack device type {self.device_type} is not on CUDA")
        if not 0 <= tensor.ndim <= _MOST_DIMENSIONS or (tensor.ndim and not tensor.shape):
            raise BufferError(f"a tensor of {tensor.ndim} dimensions without a shape")
        self.shape: tuple[int, ...] = tuple(tensor.shape[i] for i in range(tensor.ndim))
        if any(length < 0 for length in self.shape):
            raise BufferError(f"a tensor of negative shape {self.shape}")
        kind = tensor.dtype
        self.dtype: np.dtype[Any] = dlpack.dtype_of(kind.code, kind.bits, kind.lanes)
        size = math.prod(self.shape)
        if size and not tensor.data:
            raise BufferError(f"a tensor of shape {self.shape} without memory")
        self.ptr: int = (tensor.data or 0) + tensor.byte_offset
        steps = [tensor.strides[i] for i in range(tensor.ndim)] if tensor.strides else None
        self.strides = _strides(self.shape, self.dtype.itemsize, steps)
        self.is_read_only = bool(flags & dlpack.READ_ONLY)
        self._deleter = deleter
        # A list of one: list.pop is one C call, so of several that give back only one does.
        self._cell: list[int] = []

    def take(self) -> None:
        """From now on it is to be given back."""
        self._cell.append(self.address)

    def give_back(self) -> None:
        """Call the deleter; nobody may use the memory any more. Harmless a second time."""
        try:
            address = self._cell.pop()
        except IndexError:
            return
        # Who owns nothing worth deleting has no deleter. In a forked child it is the parent's.
        if self._deleter and not forked():
            _DELETER(self._deleter)(address)

    def forget(self) -> None:
        """Do not give it back: its owner has it already."""
        self._cell.clear()


def borrow(capsule: Any) -> BorrowedTensor:
    """Take the tensor out of what `__dlpack__` gave.

    Raises BufferError for a capsule that is used or not DLPack's, for a version that is not
    known, and for a tensor that is not on CUDA or not of a dtype that NumPy has; TypeError for
    anything but a capsule.
    """
    name = capsules.name_of(capsule)
    if name not in (capsules.PLAIN, capsules.VERSIONED):
        if name.startswith(b"used_"):
            raise BufferError("the capsule was used already: a tensor can be taken once")
        raise BufferError(f"a capsule named {name.decode(errors='replace')!r} is not DLPack's")
    address = capsules.pointer_in(capsule, name)
    if name == capsules.PLAIN:
        plain = dlpack.DLManagedTensor.from_address(address)
        found = BorrowedTensor(address, plain.dl_tensor, plain.deleter, flags=0)
    else:
        managed = dlpack.DLManagedTensorVersioned.from_address(address)
        version = managed.version
        if version.major != dlpack.MAJOR:
            raise BufferError(
                f"the tensor is of DLPack {version.major}.{version.minor}; "
                f"only {dlpack.MAJOR}.x and earlier are known here"
            )
        found = BorrowedTensor(address, managed.dl_tensor, managed.deleter, flags=managed.flags)
    found.take()
    capsules.mark_used(capsule, name)
    return found


def _strides(shape: tuple[int, ...], item_size: int, steps: list[int] | None) -> tuple[int, ...]:
    if steps is not None:
        return tuple(step * item_size for step in steps)
    return contiguous_strides(shape, item_size)
