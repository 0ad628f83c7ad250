"""Floor 4. `copy`: between arrays, views and host memory, as an op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.allocation import DeviceBytes, reap
from cudasync.array.array import Array
from cudasync.array.boxes import box_between, is_apart, span_on_host
from cudasync.array.foreign import ForeignArray, seen, take_over_foreign
from cudasync.array.host.memory import CPU, view_of
from cudasync.array.staging import staging_of
from cudasync.driver import DeviceBuffer, DeviceView, memcpy_async
from cudasync.driver.allocations import is_known_to_driver
from cudasync.driver.box import memcpy_box_async
from cudasync.driver.operand import address_of
from cudasync.driver.strides import contiguous_strides
from cudasync.engine import Op, engine
from cudasync.engine.hazards.variable import resolve_one
from cudasync.engine.op import OpKind
from cudasync.graph.node import Node
from cudasync.graph.transfers import Transfer

if TYPE_CHECKING:
    from cudasync.driver import Device, Stream
    from cudasync.driver.box import Box
    from cudasync.engine.hazards.interval_map import Region


class _Operand:
    """One side of a copy: what the driver takes, and what must match the other side."""

    __slots__ = (
        "device",
        "dtype",
        "handle",
        "is_contiguous",
        "is_host",
        "nbytes",
        "resource",
        "shape",
        "strides",
    )

    def __init__(self, thing: Any, role: str) -> None:
        self.resource = thing
        self.is_host = isinstance(thing, np.ndarray)
        self.device: Device | None = None
        self.shape: tuple[int, ...] | None = None
        # In bytes, where they are not those of C order.
        self.strides: tuple[int, ...] = ()
        self.dtype: np.dtype[Any] | None = None
        if isinstance(thing, np.ndarray):
            self.shape, self.dtype, self.nbytes = thing.shape, thing.dtype, thing.nbytes
            self.handle: Any = thing
            contiguous, self.strides = thing.flags.c_contiguous, thing.strides
            if role == "target" and not thing.flags.writeable:
                raise ValueError("the target of the copy is a read-only NumPy array")
        elif isinstance(thing, (Array, ForeignArray)):
            self.shape, self.dtype, self.nbytes = thing.shape, thing.dtype, thing.nbytes
            self.device, contiguous = thing.device, thing.is_contiguous
            if isinstance(thing, Array):
                thing.form.raise_if_over()
                self.strides = thing.strides
            self.handle = DeviceBytes(thing.ptr, thing.nbytes, thing.device)
            if role == "target" and thing.is_read_only:
                raise ValueError("the target of the copy is read-only")
        elif isinstance(thing, DeviceView):
            self.shape, self.dtype, self.nbytes = thing.shape, thing.dtype, thing.size_bytes
            self.device, contiguous = thing.device, True
            self.handle = DeviceBytes(thing.ptr, thing.size_bytes, thing.device)
        elif isinstance(thing, DeviceBuffer):
            self.nbytes, self.device, contiguous = thing.size_bytes, thing.device, True
            self.handle = DeviceBytes(thing.ptr, thing.size_bytes, thing.device)
        else:
            raise TypeError(
                f"the {role} of a copy is a device array, a DeviceBuffer or a NumPy array, "
                f"not {type(thing).__name__}"
            )
        self.is_contiguous = contiguous
        if not contiguous and isinstance(thing, ForeignArray):
            raise ValueError(f"the {role} of the copy, another library's, is not contiguous")

    @property
    def region(self) -> Region:
        """Its bytes from the lowest to the highest."""
        return resolve_one(self.resource, "copies")

    @property
    def whole(self) -> Any:
        """These bytes, what lies in its gaps among them, as the driver layer takes them."""
        if self.is_contiguous:
            return self.handle
        start, end = self.region
        if self.device is None:
            return span_on_host(self.handle, start, end)
        return DeviceBytes(start, end - start, self.device)


def copy(target: Any, source: Any, *, name: str | None = None, priority: int = 0) -> Op:
    """Copy `source` to `target`; returns the op at once, and never waits.

    Both are device arrays, views, `DeviceBuffer`s or NumPy arrays, of one shape and dtype (sizes,
    where one has no shape), on any devices. Between devices it is a peer copy, which the driver
    takes through the host where they are no peers. Rows that lie apart, and slices of such rows,
    are copied by one call, too, where a row is a run of elements. What else has gaps, or another
    order than C, or overlaps, is gathered or scattered on its side: by a kernel, or by a host op
    through pinned memory; the op that is returned is the last of these, and what other threads
    push may come in between.

    A NumPy array takes part in the hazards like a device array: until the op has finished, change
    or read it only through other ops.

    Copies from and to pinned memory (`pinned_empty`) are enqueued at once and run beside kernels.
    With pageable memory (any other NumPy array) the driver waits while it copies, so a thread of
    the engine issues the copy, once all that it comes after is over; later ops on its operands are
    issued when that is done. A copy with a positive `priority` is behind none without, unless it
    depends on it. Raises ValueError if shapes or sizes differ, and TypeError if dtypes do.
    """
    reap()
    target, source = _on_host(seen(target)), _on_host(seen(source))
    to, of = _Operand(target, "target"), _Operand(source, "source")
    if to.shape is not None and of.shape is not None and to.shape != of.shape:
        raise ValueError(f"can not copy shape {of.shape} to shape {to.shape}")
    if to.dtype is not None and of.dtype is not None and to.dtype != of.dtype:
        raise TypeError(f"can not copy {of.dtype} to {to.dtype}; cast first")
    if to.nbytes != of.nbytes:
        raise ValueError(f"can not copy {of.nbytes} bytes to {to.nbytes} bytes")
    if to.is_host and of.is_host:

        def copy_on_host() -> None:
            np.copyto(to.handle, of.handle)

        return engine().push(
            copy_on_host, reads=[source], writes=[target], name=name or "copy", priority=priority
        )
    box = None
    if not (to.is_contiguous and of.is_contiguous):
        box = _box(to, of)
        if box is None:
            return _apart(to, of, name, priority)
    if _meet(to, of, box):
        return _apart(to, of, name, priority)
    kind = OpKind.DTOH if to.is_host else OpKind.HTOD if of.is_host else OpKind.DTOD

    onto, out_of = to.whole, of.whole
    if box is not None and box.rows == box.slices == 1:
        # In another order than C, but the same on both sides, and without gaps.
        box = None

    def copy_on_stream(stream: Stream) -> None:
        if box is not None:
            memcpy_box_async(onto, out_of, box, stream=stream)
        elif to.nbytes:
            memcpy_async(onto, out_of, stream=stream)

    device = of.device if to.device is None else to.device
    assert device is not None
    host = to if to.is_host else of if of.is_host else None
    take_over_foreign((target, source))
    # A node where it is recorded.
    pushed: Any = engine()._push(
        copy_on_stream,
        kind,
        reads=[source],
        writes=[target],
        name=name or f"copy {kind.value}",
        priority=priority,
        device=device,
        is_blocking=host is not None and _is_pageable(host, device),
    )
    if pushed.__class__ is Node and to.nbytes and not pushed.is_blocking:
        places = (to.region, to.device), (of.region, of.device)
        pushed.transfer = Transfer(*places, box=box)
    op: Op = pushed
    return op


def _apart(to: _Operand, of: _Operand, name: str | None, priority: int) -> Op:
    """Copy what one call of the driver does not: by way of contiguous memory beside each side.

    That is for most gaps, and for sides that overlap.
    """
    # Here, since these are built upon this file.
    from cudasync.array.creation import empty
    from cudasync.array.gathering import gather, scatter

    target, source = to.resource, of.resource
    whole = name or "copy"
    # One op is the copy; what is done for it beside has a name of its own.
    aside: dict[str, Any] = {"name": f"{whole} (aside)", "priority": priority}
    lent = []
    device = to.device or of.device
    assert device is not None
    if not of.is_contiguous:
        if of.is_host:
            staged, take_back = staging_of(device).lend(source.shape, source.dtype)
            copy(staged, source, **aside)
            lent.append(take_back)
            source = staged
        else:
            source = gather(source, **aside)
    elif to.is_contiguous:
        known = to if to.shape is not None else of
        made = empty(known.shape or (of.nbytes,), known.dtype or np.uint8, device=device)
        copy(made, source, **aside)
        source = made
    if to.is_contiguous:
        op = copy(target, source, name=whole, priority=priority)
    elif to.is_host:
        staged, take_back = staging_of(device).lend(target.shape, target.dtype)
        copy(staged, source, **aside)
        lent.append(take_back)
        op = copy(target, staged, name=whole, priority=priority)
    else:
        # The kernel takes arrays of its device that do not overlap.
        if not (
            isinstance(source, Array)
            and source.device is device
            and (source.region[1] <= target.region[0] or target.region[1] <= source.region[0])
        ):
            made = empty(target.shape, target.dtype, device=device)
            copy(made, source, **aside)
            source = made
        op = scatter(target, source, name=whole, priority=priority)
    for each in lent:
        each(op)
    return op


def _box(to: _Operand, of: _Operand) -> Box | None:
    """What one call of the driver copies though one side or both have gaps; None if none does."""
    known = to if to.shape is not None else of
    shape, dtype = known.shape, known.dtype
    assert shape is not None
    assert dtype is not None
    if dtype.hasobject:
        return None
    size = dtype.itemsize
    plain = contiguous_strides(shape, size)
    return box_between(
        (shape, plain if to.is_contiguous else to.strides, size),
        (shape, plain if of.is_contiguous else of.strides, size),
    )


def _meet(to: _Operand, of: _Operand, box: Box | None) -> bool:
    """True if bytes of one side may be among the other's: the driver's copies are not for that."""
    if to.device is None or of.device is None:
        return False
    target, source = to.region, of.region
    if source.end <= target.start or target.end <= source.start:
        return False
    return box is None or not is_apart(box, target.start - source.start)


def _is_pageable(host: _Operand, device: Device) -> bool:
    """True for host memory that the driver has to be waited for with. (cuPointerGetAttribute)"""
    return bool(host.nbytes) and not is_known_to_driver(address_of(host.handle), device)


def _on_host(thing: Any) -> Any:
    """NumPy's view of an array on the CPU; anything else as it is."""
    if isinstance(thing, Array) and thing.device == CPU:
        return view_of(thing)
    return thing


def fetched(array: Array, out: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`out` with the elements of `array`; waits for that."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out= takes a NumPy array, not {type(out).__name__}")
    copy(out, array, name="numpy").wait()
    return out
