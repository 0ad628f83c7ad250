"""Floor 4, elementwise. Arrays over memory of the pool that the next op overwrites whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.memory.pool import Source
from cudasync.engine.current import maybe_engine
from cudasync.engine.hazards.interval_map import Region

if TYPE_CHECKING:
    from cudasync.array.elementwise.layouts import Layout

_new = object.__new__


def result_over(memory: Any, layout: Layout, region: Region | None = None) -> Any:
    """An array of this contiguous layout, from the start of `memory`; `region` is its region, if
    known."""
    made = _new(layout.kind)
    made.ptr = start = memory.ptr
    made._allocation = memory
    made.shape = layout.shape
    made.strides = layout.strides
    made.dtype = layout.dtype
    made.form = layout.form
    made.region = region or Region(start, start + layout.high)
    made._memory = None
    made._layout = layout
    return made


def new_result(layout: Layout) -> Any:
    """A new array of this layout, on a device. The next op on it must overwrite it whole."""
    made = result_over(Source(layout.device, layout.nbytes).take(), layout)
    recorder: Any = maybe_engine()
    if recorder is not None and recorder.mode == "recording":
        recorder.let_be_made(made.region)
    return made
