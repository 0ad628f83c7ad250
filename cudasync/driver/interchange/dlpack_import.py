"""Floor 1. Import by DLPack: takes another library's tensor out of its capsule.

A tensor is checked completely before it is taken: a refused tensor stays in its capsule, whose
owner ends it. A taken tensor is given back once, by a call of its deleter.
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

# NumPy's limit on dimensions; a larger number is garbage.
_MOST_DIMENSIONS = 64

SHARED_DEVICES = (DLPACK_CUDA, DLPACK_CUDA_MANAGED)


class BorrowedTensor:
    """Device memory borrowed from another library until `give_back`. Strides are in bytes."""

    __slots__ = (
        "_cell",
        "_deleter",
        "address",
        "device_type",
        "dtype",
        "is_marked",
        "is_read_only",
        "ordinal",
        "ptr",
        "shape",
        "strides",
    )

    def __init__(
        self, address: int, tensor: Any, deleter: int | None, *, flags: int | None
    ) -> None:
        self.address = address
        self.device_type: int = tensor.device.device_type
        self.ordinal: int = tensor.device.device_id
        if self.device_type not in SHARED_DEVICES:
            raise BufferError(
                f"the tensor is on DLPack device type {self.device_type}, not on CUDA"
            )
        if not 0 <= tensor.ndim <= _MOST_DIMENSIONS or (tensor.ndim and not tensor.shape):
            raise BufferError(f"the tensor has {tensor.ndim} dimensions, but no shape")
        self.shape: tuple[int, ...] = tuple(tensor.shape[i] for i in range(tensor.ndim))
        if any(length < 0 for length in self.shape):
            raise BufferError(f"the tensor has a negative shape, {self.shape}")
        kind = tensor.dtype
        self.dtype: np.dtype[Any] = dlpack.dtype_of(kind.code, kind.bits, kind.lanes)
        size = math.prod(self.shape)
        if size and not tensor.data:
            raise BufferError(f"the tensor of shape {self.shape} has no memory")
        self.ptr: int = (tensor.data or 0) + tensor.byte_offset
        steps = [tensor.strides[i] for i in range(tensor.ndim)] if tensor.strides else None
        self.strides = _strides(self.shape, self.dtype.itemsize, steps)
        # DLPack before 1.0 has no flags: whether the memory may be written is not known.
        self.is_marked = flags is not None
        self.is_read_only = flags is None or bool(flags & dlpack.READ_ONLY)
        self._deleter = deleter
        # A list of one: list.pop is one C call, so only one of several threads gives it back.
        self._cell: list[int] = []

    def take(self) -> None:
        """Mark the tensor as taken: it must be given back."""
        self._cell.append(self.address)

    def give_back(self) -> None:
        """Call the deleter; the memory must not be used afterwards. A second call is harmless."""
        try:
            address = self._cell.pop()
        except IndexError:
            return
        # A tensor may have no deleter. In a forked child the tensor belongs to the parent.
        if self._deleter and not forked():
            _DELETER(self._deleter)(address)

    def forget(self) -> None:
        """Do not give the tensor back: its owner has it already."""
        self._cell.clear()


def borrow(capsule: Any) -> BorrowedTensor:
    """Take the tensor out of the result of `__dlpack__`.

    Raises BufferError for a used or foreign capsule, for an unknown version, and for a tensor that
    is not on CUDA or has no NumPy dtype; TypeError for anything but a capsule.
    """
    name = capsules.name_of(capsule)
    if name not in (capsules.PLAIN, capsules.VERSIONED):
        if name.startswith(b"used_"):
            raise BufferError("the capsule was used already: export the tensor again")
        raise BufferError(f"a capsule named {name.decode(errors='replace')!r} is not DLPack's")
    address = capsules.pointer_in(capsule, name)
    if name == capsules.PLAIN:
        plain = dlpack.DLManagedTensor.from_address(address)
        found = BorrowedTensor(address, plain.dl_tensor, plain.deleter, flags=None)
    else:
        managed = dlpack.DLManagedTensorVersioned.from_address(address)
        version = managed.version
        if version.major != dlpack.MAJOR:
            raise BufferError(
                f"the tensor is of DLPack {version.major}.{version.minor}; cudasync knows "
                f"versions up to {dlpack.MAJOR}.x"
            )
        found = BorrowedTensor(address, managed.dl_tensor, managed.deleter, flags=managed.flags)
    found.take()
    capsules.mark_used(capsule, name)
    return found


def _strides(shape: tuple[int, ...], item_size: int, steps: list[int] | None) -> tuple[int, ...]:
    if steps is not None:
        return tuple(step * item_size for step in steps)
    return contiguous_strides(shape, item_size)
