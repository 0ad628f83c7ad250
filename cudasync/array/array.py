"""Floor 4. Arrays on a device: memory, shape and dtype; views share memory.

An array names bytes of the unified address space. The engine orders all ops on overlapping bytes,
whichever views name them. Only `numpy()` and `wait()` wait.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex

import numpy as np
from numpy.lib.stride_tricks import as_strided

from cudasync.array import basic_indexing, namespace
from cudasync.array.allocation import DeviceBytes, reap
from cudasync.array.elementwise import layouts
from cudasync.array.elementwise.plan import DevicePlan
from cudasync.array.host.memory import CPU
from cudasync.array.interchange.protocols import Protocols
from cudasync.array.interchange.stream_ownership import refuse_unless_handed
from cudasync.array.memory.limits import check_size
from cudasync.array.operators.arithmetic import Arithmetic
from cudasync.array.operators.assignment import assign
from cudasync.array.operators.matrix_product import Multiplying
from cudasync.array.operators.values import Values
from cudasync.driver import memcpy_async
from cudasync.driver.arguments.argument_form import form_for
from cudasync.driver.memory.strides import contiguous_strides, is_contiguous
from cudasync.engine import engine
from cudasync.engine.hazards.variable import span, wait_for_writers
from cudasync.engine.op import OpKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import DTypeLike

    from cudasync.array.allocation import Memory
    from cudasync.array.elementwise.layouts import Layout
    from cudasync.driver import Device, Stream
    from cudasync.engine.hazards.interval_map import Region

# The bytes of its own on each side of a graph's slot; a multiple of every alignment of an array.
_MARGIN = 512


class Array(Arithmetic, Multiplying, Values, Protocols):
    """An n-dimensional array in device memory.

    Made by `array`, `empty`, `zeros` and by slicing, not directly. `shape` counts elements,
    `strides` bytes. Basic slicing gives views of the same memory: ops on disjoint views run
    concurrently, on overlapping ones in order. The memory is freed, in order, when the last array
    that uses it is gone.

    The operators are those of the array API standard, on all elements, and return at once.
    """

    __slots__ = (
        "_allocation",
        "_layout",
        "_memory",
        "dtype",
        "form",
        "ptr",
        "region",
        "shape",
        "strides",
    )

    # The class that plans an operation on such arrays, and the class of its result.
    __cudasync_plan__: ClassVar[type[DevicePlan]] = DevicePlan
    __cudasync_result__: ClassVar[type[Array]]

    def __init__(
        self,
        allocation: Memory,
        ptr: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        self._allocation = allocation
        self.ptr = ptr
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        # None until an operator asks for it.
        self._layout: Layout | None = None
        # What the driver layer asks for with every copy; None until it asks.
        self._memory: tuple[int, int, bool] | None = None
        # The bytes from the first to the last element: the engine tracks hazards on them.
        self.region: Region = span(ptr, shape, strides, dtype.itemsize)
        has_gaps = not is_contiguous(shape, strides, dtype.itemsize)
        # The properties that a kernel checks.
        self.form = form_for(type(self), dtype, has_gaps, allocation.only_device, allocation.life)

    @property
    def device(self) -> Device:
        return self._allocation.device

    @property
    def layout(self) -> Layout:
        """All that an operation depends on but the address: one object for all equal arrays."""
        found = self._layout
        if found is None:
            found = layouts.layout(self.form, self.shape, self.strides, self.device)
            self._layout = found
        return found

    @property
    def mT(self) -> Array:
        """A view with the last two dimensions exchanged; ValueError if there are fewer."""
        if self.ndim < 2:
            raise ValueError(f"mT takes 2 or more dimensions, the array has {self.ndim}")
        return self._permuted((*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))

    @property
    def T(self) -> Array:
        """The transpose of a matrix, a view; ValueError unless there are two dimensions."""
        if self.ndim != 2:
            raise ValueError(f"T takes 2 dimensions, the array has {self.ndim}: use permute_dims")
        return self._permuted((1, 0))

    def _permuted(self, axes: tuple[int, ...]) -> Array:
        shape = tuple(self.shape[axis] for axis in axes)
        return self._viewed(0, shape, tuple(self.strides[axis] for axis in axes))

    def _viewed(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        """A view of the same dtype; `offset` and `strides` are in bytes."""
        return type(self)(self._allocation, self.ptr + offset, shape, strides, self.dtype)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The standard's functions for this array: `cudasync.xp`."""
        return namespace.namespace(api_version)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """True if the elements lie in C order without gaps."""
        return is_contiguous(self.shape, self.strides, self.dtype.itemsize)

    @property
    def is_read_only(self) -> bool:
        """True for another library's memory that was lent as read-only."""
        return False

    def _slot(self) -> Array:
        """Memory for an equal array: a graph's slot, which stands for any array of this kind.

        A margin around it is its own, so that no pointer to a neighbour is its beginning or end.
        """
        from cudasync.array.any_device import is_anywhere
        from cudasync.array.creation import empty, empty_like

        if self.device == CPU or is_anywhere(self):
            return empty_like(self)
        around = empty(self.nbytes + 2 * _MARGIN, np.uint8, device=self.device)
        strides = contiguous_strides(self.shape, self.dtype.itemsize)
        return Array(around._allocation, around.ptr + _MARGIN, self.shape, strides, self.dtype)

    def __cudasync_order__(self, stream: Any) -> None:
        """Raise ValueError unless the driver layer may use the array on `stream`.

        Allowed in an op, and after `hand_over` to the stream. (None: the current stream)
        """
        refuse_unless_handed(self, stream)

    def __cudasync_memory__(self, stream: Any) -> tuple[int, int, bool]:
        """Address, size and whether it is read-only, for the driver layer. Orders nothing.

        Raises ValueError for an array with gaps, and what `__cudasync_order__` raises.
        """
        memory = self._memory
        if memory is None:
            if not self.is_contiguous:
                raise ValueError(
                    f"the array of shape {self.shape} with strides {self.strides} "
                    "is not C-contiguous: give x.copy()"
                )
            memory = self._memory = (self.ptr, self.nbytes, self.is_read_only)
        refuse_unless_handed(self, stream)
        return memory

    def numpy(self, *, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """Copy to the host. Waits for the writers of this array, and for nothing else.

        With `out`, of the same shape and dtype, the copy goes there, in order with ops on `out`,
        and `out` is returned once it is written. Into pinned memory it is one copy of the driver's.

        Only the calling thread waits; Ctrl-C ends the wait. Raises `OpError` if the array is
        poisoned, and for `out` whatever `copy` raises.
        """
        # Imported here, because copies are built upon this file.
        from cudasync.array.copies.copy import fetched, fetched_rows

        if out is not None:
            return fetched(self, out)
        reap()
        self.form.raise_if_over()
        check_size(self.shape, self.nbytes, CPU)
        low, high = self.region
        if high - low > 2 * self.nbytes:
            rows = fetched_rows(self)
            if rows is not None:
                return rows
        host = np.empty(high - low, np.uint8)
        if host.size:
            source = DeviceBytes(low, high - low, self.device)

            def fetch(stream: Stream) -> None:
                memcpy_async(host, source, stream=stream)

            engine()._push(
                fetch,
                OpKind.DTOH,
                reads=[self.region],
                name="numpy",
                device=self.device,
                is_blocking=True,
            ).wait()
        view = np.ndarray(self.shape, self.dtype, host, self.ptr - low, self.strides)
        return view if self.is_contiguous else view.copy()

    def wait(self, timeout: float | None = None) -> None:
        """Block until the ops that wrote this array have finished; errors as for `Op.wait`."""
        wait_for_writers([self.region], timeout)

    def __getitem__(self, index: Any) -> Array:
        """A view: integers, slices, Ellipsis and None, as in NumPy. IndexError beyond the shape.

        With arrays of integers or a mask in the index, ours or NumPy's, the result is a new array.
        With integers it returns at once: an index beyond its axis takes the nearest element. A mask
        is waited for, because its count is data.
        """
        if basic_indexing.has_arrays(index):
            from cudasync.array.advanced_indexing.subscripts import get
            from cudasync.array.creation import array

            picked: Array = get(self, index, sys._getframe(1), array)
            return picked
        return self._viewed(*basic_indexing.view(self.shape, self.strides, index))

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write to a view, in order with all other ops. Returns at once; errors as for an in-place
        operator. `value` is a number, an array of this device, or host data, and broadcasts.

        The index may contain arrays, as in reading. Of equal indices the last one counts; an index
        beyond its axis writes nothing. A mask is waited for, unless `value` has no dimensions.
        """
        from cudasync.array.creation import array

        if basic_indexing.has_arrays(index):
            from cudasync.array.advanced_indexing.subscripts import put

            put(self, index, value, sys._getframe(1), array)
            return
        assign(self[index], value, sys._getframe(1), array)

    def reshape(self, *shape: Any) -> Array:
        """A view with another shape of as many elements; one size may be -1, and is computed.

        Raises ValueError if the sizes differ or the array is not contiguous.
        """
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        if not self.is_contiguous:
            raise ValueError("reshape needs a contiguous array: use x.copy().reshape(...)")
        full = basic_indexing.fill_shape(tuple(int(n) for n in wanted), self.size)
        strides = contiguous_strides(full, self.dtype.itemsize)
        return type(self)(self._allocation, self.ptr, full, strides, self.dtype)

    def view(self, dtype: DTypeLike) -> Array:
        """A view of the same bytes as elements of another dtype, by NumPy's rules.

        If the size of elements changes, the last axis must be contiguous, and its bytes a multiple
        of the new size: ValueError otherwise. TypeError for a dtype without a fixed size.
        """
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise TypeError(f"dtype {kind} has no fixed size: give another dtype")
        # NumPy's answer for the same layout; the memory behind it is never touched.
        layout = as_strided(np.empty(0, self.dtype), self.shape, self.strides).view(kind)
        return type(self)(self._allocation, self.ptr, layout.shape, layout.strides, kind)

    def copy(self) -> Array:
        """A new array with the same elements, always contiguous. Does not wait."""
        # Imported here, because these modules are built upon this file.
        from cudasync.array.copies.copy import copy
        from cudasync.array.copies.gather_scatter import gather
        from cudasync.array.creation import empty_like

        if not self.is_contiguous:
            return gather(self)
        made = empty_like(self)
        copy(made, self)
        return made

    def to_device(self, device: Any, /, *, stream: None = None) -> Array:
        """A copy of this array on another device (an ordinal, `cs.Device` or "cpu"); the array
        itself if it is there. With `cs.ANY` in `with cs.graph()`, a copy that may be on any device;
        elsewhere the array itself.

        A push: returns at once, and the engine chooses the stream. A copy is contiguous.
        """
        from cudasync.array.any_device import is_on
        from cudasync.array.copies.copy import copy
        from cudasync.array.creation import empty

        if stream is not None:
            raise ValueError("the engine orders to_device: leave stream= out")
        if device == "cpu":
            from cudasync.array.host.array import to_host

            return to_host(self)
        if is_on(self, device):
            return self
        made = empty(self.shape, self.dtype, device=device)
        copy(made, self)
        return made

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array of 0 dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Pickle by value: waits for the array. It is restored on the device of the same number."""
        from cudasync.array.creation import array

        return _restored, (array, self.numpy(), self.device.ordinal)


Array.__cudasync_result__ = Array


def _restored(make: Callable[..., Array], host: np.ndarray[Any, Any], ordinal: int) -> Array:
    """The pickled array, in another process or as a copy here."""
    return make(host, device=ordinal)


class ReadOnlyArray(Array):
    """An array over memory that its owner lent as read-only; views of it are read-only, too.

    A type of its own, because a kernel decides by the types of its arguments what a call writes.
    """

    __slots__ = ()

    @property
    def is_read_only(self) -> bool:
        return True
