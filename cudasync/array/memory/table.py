"""Floor 4, memory. The table of the holders of memory in an `OutOfMemoryError`.

It asks the garbage collector for the arrays that refer to the memory, so no array pays before an
error. It does not ask about all objects: a reference to a tuple under construction in another
thread breaks that tuple.
"""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.array.memory.exhaustion import OUT_OF_MEMORY
from cudasync.array.memory.holdings import holdings_of
from cudasync.array.memory.statistics import idle_of, memory_stats, state_of
from cudasync.engine.hazards.interval_map import Region
from cudasync.engine.log.writers import last_writer
from cudasync.engine.op import site_of
from cudasync.errors import OutOfMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.array.memory.holdings import Holding
    from cudasync.driver import Device


# The number of rows; equal arrays share one.
_MOST_ROWS = 10


class _Row(NamedTuple):
    """A row about memory in use."""

    size_bytes: int
    what: str
    where: str


def refusal(call: str, device: Device, size_bytes: int) -> OutOfMemoryError:
    """The error for an allocation of `size_bytes` that `device` finally refused in `call`."""
    return OutOfMemoryError(
        OUT_OF_MEMORY,
        "CUDA_ERROR_OUT_OF_MEMORY",
        call=call,
        device=device.ordinal,
        size_bytes=size_bytes,
        table=f"{memory_stats(device)}\n{holders(device)}",
    )


def holders(device: Device) -> str:
    """The largest live arrays of a device, a line each."""
    idle = idle_of(device)
    used = [each for each in holdings_of(device).all() if state_of(each, idle) == "in use"]
    if not used:
        return "no array is in use"
    rows = Counter(map(_row, *_with_arrays(used)))
    ranked = sorted(rows.items(), key=lambda item: -item[0].size_bytes * item[1])
    lines = [
        f"    {count * row.size_bytes:>20,}  {f'{count} x ' if count > 1 else ''}"
        f"{row.what}, {row.where}"
        for row, count in ranked[:_MOST_ROWS]
    ]
    left = sum(count for _, count in ranked[_MOST_ROWS:])
    if left:
        size = sum(count * row.size_bytes for row, count in ranked[_MOST_ROWS:])
        lines.append(f"    {size:>20,}  {left} more")
    return "\n".join([f"in use by {len(used)} allocations:", *lines])


def _row(holding: Holding, array: Any) -> _Row:
    size = holding.buffer.size_bytes
    what = "memory of unknown arrays"
    if array is not None:
        what = f"shape {array.shape} {array.dtype}"
        if array.nbytes < size:
            what += " in more memory"
    start = holding.buffer.ptr
    writer = last_writer(Region(start, start + size))
    if writer is not None:
        where = f"written by {writer.name!r}, pushed at {site_of(writer._code, writer._at)}"
    else:
        where = f"allocated at {site_of(holding.code, holding.at)}"
    return _Row(size, what, where)


def _with_arrays(used: list[Holding]) -> tuple[list[Holding], list[Any]]:
    """Each holding with the largest array in its memory, or None."""
    used = sorted(used, key=lambda holding: holding.buffer.ptr)
    starts = [holding.buffer.ptr for holding in used]
    found: list[Any] = [None] * len(used)
    for array in _arrays([each for holding in used if (each := holding.whose()) is not None]):
        at = bisect_right(starts, array.ptr) - 1
        if at < 0 or array.ptr >= starts[at] + max(1, used[at].buffer.size_bytes):
            continue
        known = found[at]
        if known is None or known.nbytes < array.nbytes:
            found[at] = array
    return used, found


def _arrays(allocations: list[Any]) -> Iterable[Any]:
    """The arrays on these allocations: they refer to them directly, or through a `Block` or
    `Held`."""
    # Imported here, because these modules are built upon the code that asks for the table.
    from cudasync.array.array import Array
    from cudasync.array.elementwise.recorded import Held
    from cudasync.array.memory.pool import Block

    found: list[Any] = []
    layer = allocations
    while layer:
        referring = gc.get_referrers(*layer)
        # `type(e)`: reading `__class__` may run code of the program. An array under construction in
        # another thread has no address yet.
        found += [e for e in referring if issubclass(type(e), Array) and _has_memory(e)]
        layer = [each for each in referring if type(each) in (Block, Held)]
    return found


def _has_memory(array: Any) -> bool:
    return all(hasattr(array, name) for name in ("ptr", "shape", "dtype"))
