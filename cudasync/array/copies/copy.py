"""Floor 4, copies. `copy`: between arrays, views and host memory, as an op."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from cudasync.array.allocation import reap
from cudasync.array.array import Array
from cudasync.array.copies.copy_operands import Side, box_of, meet, raise_unless_alike
from cudasync.array.copies.staging import KEPT_BYTES, forget, staging_of
from cudasync.array.host.memory import CPU, view_of
from cudasync.array.interchange.cuda_array_interface import seen, take_over_foreign
from cudasync.driver import memcpy_async
from cudasync.driver.memory.allocations import is_known_to_driver
from cudasync.driver.memory.box_copies import memcpy_box_async
from cudasync.driver.memory.operand import address_of
from cudasync.engine import Op, engine
from cudasync.engine.hazards.variable import is_written
from cudasync.engine.op import OpKind
from cudasync.graph.node import Node
from cudasync.graph.transfers import Transfer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver import Device, Stream

# More is set aside in pageable memory: page-locking would take longer than the copy.
MOST_PINNED_BYTES = KEPT_BYTES // 2


def copy(
    target: Any,
    source: Any,
    *,
    count: SupportsIndex | None = None,
    name: str | None = None,
    priority: int = 0,
) -> Op:
    """Copy `source` to `target`; returns the op at once, and waits for no work. (A kernel that it
    needs for the first time is loaded as any module is: once the device is idle.)

    A target in NumPy memory has the copy once the op is over: `cs.copy(host, x).wait()`, or
    `x.numpy(out=host)`. NumPy reads the memory without asking the engine, so a read before that
    gives old contents; `python -m cudasync run --check=race` finds it. A source in NumPy memory may
    change as soon as this returns: its contents are set aside first, which takes as much memory
    until the op is over. That does not hold for pinned memory, for a source that an unfinished op
    writes, and in a recording, whose launches read the source. There only other ops may change it
    until the op, or the launch, is over. (What another thread pushes meanwhile to write the source
    is not ordered with it.)

    Both are device arrays, views, `DeviceBuffer`s or NumPy arrays, of one shape and dtype (of one
    size, where a side has no shape), on any devices. Between devices it is a peer copy; without
    peer access the driver takes it through the host. One call also copies rows that lie apart, and
    slices of such rows, where a row is a run of elements. A side with other gaps, in another order
    than C, or overlapping, is gathered or scattered by a kernel, or by a host op through pinned
    memory. The returned op is the last of these, and pushes of other threads may come in between.

    With `count` only the first `count` elements are copied, in C order; the arrays must be
    contiguous and may differ in size. In a recording `count` may be an argument of the graph. It
    may then become any number up to the size of the smaller array, unless both are on the host.

    A NumPy array takes part in the hazards like a device array.

    Copies from and to pinned memory (`pinned_empty`) are enqueued at once and overlap kernels. With
    pageable memory (any other NumPy array) as the target the driver waits while it copies. So a
    thread of the engine issues the copy once its predecessors are over; later ops on its operands
    are issued when the copy is done. A copy with a positive `priority` never waits behind a copy
    without one, unless it depends on that copy. Raises ValueError if shapes or sizes differ,
    TypeError if dtypes do, and ClosedError for memory that was closed or lost in a reset of its
    device.
    """
    if count is not None:
        return _copy_first(target, source, count, name, priority)
    reap()
    target, source = _on_host(seen(target)), seen(source)
    is_of_numpy = isinstance(source, np.ndarray)
    source = _on_host(source)
    to, of = Side(target, "target"), Side(source, "source")
    raise_unless_alike(to, of)
    is_pageable: bool | None = None
    if is_of_numpy and of.nbytes and engine().mode != "recording":
        is_pageable = to.device is None or _is_pageable(of, to.device)
        if is_pageable and _is_of_the_program(of):
            source, lend_until = _set_aside(source, to.device)
            is_pageable = lend_until is forget
            op = _copy(Side(source, "source"), to, name, priority, is_pageable=is_pageable)
            lend_until(op)
            return op
    return _copy(of, to, name, priority, is_pageable=is_pageable)


def _is_of_the_program(of: Side) -> bool:
    """True if the contents of pageable memory count as of now, and may change afterwards.

    Other ops may change memory that an unfinished op writes, and its failure is inherited. (A
    writer of another thread, pushed while this looks, is not ordered with the copy anyway.)
    """
    return not is_written(of.region)


def _set_aside(
    source: np.ndarray[Any, Any], device: Device | None
) -> tuple[np.ndarray[Any, Any], Callable[[Op], None]]:
    """The contents of `source` as of now, and a function to call with the op that reads them.

    They have the order of `source` without its gaps, so the copy takes no more calls than before.
    """
    # With the ellipsis an array without axes stays an array.
    upright: tuple[Any, ...] = (
        *(slice(None, None, -1 if step < 0 else 1) for step in source.strides),
        ...,
    )
    source = source[upright]
    order = sorted(range(source.ndim), key=source.strides.__getitem__, reverse=True)
    source = source.transpose(order)
    if device is None or source.nbytes > MOST_PINNED_BYTES:
        staged = source.copy()
        lend_until: Callable[[Op], None] = forget
    else:
        staged, lend_until = staging_of(device).lend(source.shape, source.dtype)
        np.copyto(staged, source)
    return staged.transpose(sorted(range(len(order)), key=order.__getitem__))[upright], lend_until


def _copy(
    of: Side, to: Side, name: str | None, priority: int, *, is_pageable: bool | None = None
) -> Op:
    """Push the copy between two sides that match. `is_pageable` tells of a source in host memory;
    None if nobody has asked the driver."""
    target, source = to.resource, of.resource
    if to.is_host and of.is_host:

        def copy_on_host() -> None:
            np.copyto(to.handle, of.handle)

        return engine().push(
            copy_on_host, reads=[source], writes=[target], name=name or "copy", priority=priority
        )
    box = None
    if not (to.is_contiguous and of.is_contiguous):
        box = box_of(to, of)
        if box is None:
            return _apart(to, of, name, priority)
    if meet(to, of, box):
        return _apart(to, of, name, priority)
    kind = OpKind.DTOH if to.is_host else OpKind.HTOD if of.is_host else OpKind.DTOD

    onto, out_of = to.whole, of.whole
    if box is not None and box.rows == box.slices == 1:
        # The order is not C, but the same on both sides, and there are no gaps.
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
    # In a recording this is a node.
    pushed: Any = engine()._push(
        copy_on_stream,
        kind,
        reads=[source],
        writes=[target],
        name=name or f"copy {kind.value}",
        priority=priority,
        device=device,
        is_blocking=host is not None
        and (_is_pageable(host, device) if host is to or is_pageable is None else is_pageable),
    )
    if pushed.__class__ is Node and to.nbytes:
        places = (to.region, to.device), (of.region, of.device)
        pushed.transfer = Transfer(*places, box=box)
        # The transfer does not refer to the arrays, so the graph sees when the program drops them.
        pushed.fn = pushed.transfer.on
    op: Op = pushed
    return op


def _copy_first(
    target: Any, source: Any, count: SupportsIndex, name: str | None, priority: int
) -> Op:
    """Copy the first elements; a node carries their number, which may be an argument."""
    flat = []
    for side, role in ((target, "target"), (source, "source")):
        if not hasattr(side, "dtype") or not hasattr(side, "reshape"):
            raise TypeError(f"count= needs arrays, but {role} is a {type(side).__name__}")
        seen_as = Side(_on_host(seen(side)), role)
        if not seen_as.is_contiguous:
            raise ValueError(f"{role} is not C-contiguous: count= needs contiguous arrays")
        flat.append(side.reshape(-1))
    first = operator.index(count)
    most = min(each.size for each in flat)
    if not 0 <= first <= most:
        raise ValueError(f"count is {first}, but the smaller array has {most} elements")
    op = copy(flat[0][:first], flat[1][:first], name=name, priority=priority)
    node: Any = op
    if node.__class__ is Node and node.transfer is not None:
        element_bytes = flat[0].dtype.itemsize
        node.transfer = replace(node.transfer, count=count, element_bytes=element_bytes, most=most)
        node.fn = node.transfer.on
    return op


def _apart(to: Side, of: Side, name: str | None, priority: int) -> Op:
    """Copy sides that one driver call cannot, through contiguous memory beside each side.

    This covers most gaps, and sides that overlap.
    """
    # Imported here, because these modules are built upon this file.
    from cudasync.array.copies.gather_scatter import gather, scatter
    from cudasync.array.creation import empty

    target, source = to.resource, of.resource
    whole = name or "copy"
    # One op is the copy; the ops around it have a name of their own.
    aside: dict[str, Any] = {"name": f"{whole} (aside)", "priority": priority}
    lent = []
    device = to.device or of.device
    assert device is not None
    if not of.is_contiguous:
        if of.is_host:
            staged, take_back = staging_of(device).lend(source.shape, source.dtype)
            _copy(of, Side(staged, "target"), **aside)
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
        op = _copy(Side(source, "source"), to, whole, priority)
    elif to.is_host:
        staged, take_back = staging_of(device).lend(target.shape, target.dtype)
        copy(staged, source, **aside)
        lent.append(take_back)
        op = _copy(Side(staged, "source"), to, whole, priority)
    else:
        # The kernel takes arrays of its own device that do not overlap.
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


def _is_pageable(host: Side, device: Device) -> bool:
    """True for host memory with which the driver's copies block. (cuPointerGetAttribute)"""
    return bool(host.nbytes) and not is_known_to_driver(address_of(host.handle), device)


def _on_host(thing: Any) -> Any:
    """NumPy's view of an array on the CPU; anything else as it is."""
    if isinstance(thing, Array) and thing.device == CPU:
        return view_of(thing)
    return thing


def fetched(array: Array, out: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`out` with the elements of `array`; waits for them."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out= takes a NumPy array, not {type(out).__name__}")
    copy(out, array, name="numpy").wait()
    return out


def fetched_rows(array: Array) -> np.ndarray[Any, Any] | None:
    """A new NumPy array with the elements of `array`, without the bytes between its rows; waits for
    it. None if the copy takes more than one driver call."""
    made = np.empty(array.shape, array.dtype)
    if not made.size or box_of(Side(made, "target"), Side(array, "source")) is None:
        return None
    return fetched(array, made)
