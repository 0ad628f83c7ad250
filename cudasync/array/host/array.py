"""Floor 4, host. An array on the CPU: the operators of `Array`, as host ops on NumPy."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, SupportsIndex

import numpy as np

from cudasync.array.array import Array
from cudasync.array.basic_indexing import has_arrays
from cudasync.array.copies.copy import copy, fetched
from cudasync.array.creation import empty
from cudasync.array.elementwise.layouts import contiguous
from cudasync.array.elementwise.operation import COPY
from cudasync.array.elementwise.plan import user_frame
from cudasync.array.elementwise.results import result_over
from cudasync.array.host.memory import CPU, bytes_for, view_of
from cudasync.array.host.plan import HostPlan
from cudasync.array.interchange.external_streams import wait_for_users
from cudasync.array.memory.limits import check_size
from cudasync.array.operators.assignment import assign
from cudasync.array.operators.values import outline
from cudasync.engine import current
from cudasync.engine.hazards.variable import wait_for_writers

if TYPE_CHECKING:
    from cudasync.array.dtypes.supported import DType


class HostArray(Array):
    """An n-dimensional array in the process's memory, whose operations are ops of the engine.

    Made by `xp` with `device="cpu"`, and by `x.to_device("cpu")`. It supports everything that
    `Array` does, but no kernel takes it.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        _allocation: Any

    __cudasync_plan__: ClassVar[Any] = HostPlan
    __cudasync_result__: ClassVar[type[Array]]

    @property
    def __cuda_array_interface__(self) -> NoReturn:
        raise AttributeError("an array on the CPU is not device memory: use x.to_device(0)")

    def __cudasync_memory__(self, stream: Any) -> NoReturn:
        raise TypeError(f"{outline(self)} is not device memory: use x.to_device(0)")

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule with this array's memory; waits for all ops so far on it.

        The engine does not see what the consumer does, which may be a write. Raises BufferError for
        another device.
        """
        if stream is not None:
            raise ValueError("an array on the CPU is exported without a stream")
        if current.is_in_op():
            # The op is in order already, and would wait for itself.
            self.wait()
        else:
            wait_for_users(self)
        view = view_of(self)
        return view.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)

    def numpy(self, *, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """A copy as a NumPy array, or in `out`. Waits for the writers of this array, and with `out`
        for ops on it, but for nothing else."""
        if out is not None:
            return fetched(self, out)
        if self._allocation.known[0] is not self._layout:
            check_size(self.shape, self.nbytes, CPU)
        wait_for_writers([self.region], None)
        # In no variable: that would outlive the array, whose memory then could not be reused.
        return view_of(self).copy()

    def __getitem__(self, index: Any) -> Array:
        """A view, or a new array, as in `Array`."""
        if has_arrays(index):
            from cudasync.array.advanced_indexing.subscripts import get

            picked: Array = get(self, index, sys._getframe(1), uploaded)
            return picked
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write to a view, as in `Array`."""
        if has_arrays(index):
            from cudasync.array.advanced_indexing.subscripts import put

            put(self, index, value, sys._getframe(1), uploaded)
            return
        assign(self[index], value, sys._getframe(1), uploaded)

    def copy(self) -> Array:
        """A new array with the same elements, always contiguous. Does not wait."""
        made: Array = COPY((self,), user_frame())
        return made

    def to_device(self, device: Any, /, *, stream: None = None) -> Array:
        """A copy on a device, an ordinal or `cs.Device`; the array itself for "cpu". Does not
        wait."""
        if stream is not None:
            raise ValueError("the engine orders to_device: leave stream= out")
        if device == CPU:
            return self
        source = self if self.is_contiguous else self.copy()
        made = empty(self.shape, self.dtype, device=device)
        copy(made, view_of(source))
        return made

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Pickle by value: waits for the array."""
        return _restored, (self.numpy(),)


HostArray.__cudasync_result__ = HostArray


class ReadOnlyHostArray(HostArray):
    """An array over memory that its owner lent as read-only; views of it are read-only, too."""

    __slots__ = ()

    @property
    def is_read_only(self) -> bool:
        return True


def new_on_host(shape: tuple[int, ...], dtype: DType) -> HostArray:
    """An uninitialised array on the CPU. TypeError for a dtype of Python objects."""
    if dtype.hasobject:
        raise TypeError(
            f"dtype {dtype} has no fixed size, so an array cannot hold it: give another dtype"
        )
    layout = contiguous(HostArray, dtype, shape, CPU)
    made: HostArray = result_over(bytes_for(layout), layout)
    return made


def uploaded(host: np.ndarray[Any, Any], device: Any = CPU) -> HostArray:
    """An array on the CPU with a copy of `host`; the copy is complete when this returns."""
    made = new_on_host(host.shape, host.dtype)
    np.copyto(view_of(made), host)
    return made


def to_host(x: Array) -> HostArray:
    """A copy of a device's array on the CPU: a push, which returns at once."""
    made = new_on_host(x.shape, x.dtype)
    copy(view_of(made), x if x.is_contiguous else x.copy())
    return made


def _restored(host: np.ndarray[Any, Any]) -> HostArray:
    return uploaded(host)
