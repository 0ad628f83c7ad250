"""Floor 4, elementwise. The layout of an array: everything but the address that operations use.

Layouts are interned, so that plans are found by identity.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from cudasync.driver.arguments.argument_form import form_for
from cudasync.driver.memory.strides import contiguous_strides
from cudasync.engine.hazards.variable import span

if TYPE_CHECKING:
    from cudasync.array.dtypes.supported import DType
    from cudasync.driver.arguments.argument_form import Form
    from cudasync.engine.hazards.interval_map import Region

# Beyond this many layouts, the table begins anew.
_MOST = 4096
# For each layout this many bytes of memory are kept for results, in at most this many pieces.
_KEPT_BYTES = 16384
_MOST_IDLE = 64


class Layout:
    """Class, dtype, shape, strides in bytes and device of arrays."""

    __slots__ = (
        "device",
        "dtype",
        "form",
        "high",
        "idle",
        "kind",
        "low",
        "nbytes",
        "region_type",
        "shape",
        "size",
        "strides",
    )

    def __init__(
        self, form: Form, shape: tuple[int, ...], strides: tuple[int, ...], device: Any
    ) -> None:
        assert form.dtype is not None
        self.kind: type[Any] = form.kind
        self.dtype: DType = form.dtype
        self.shape = shape
        self.strides = strides
        self.device = device
        self.size = math.prod(shape)
        self.nbytes = self.size * self.dtype.itemsize
        # The region and the form of an array at address 0.
        region = span(0, shape, strides, self.dtype.itemsize)
        self.low, self.high = region
        self.region_type: type[Region] = type(region)
        self.form = form
        # Memory of dead results on the CPU: see `host.memory`. Finalisers put it there.
        self.idle: deque[Any] = deque(maxlen=min(_MOST_IDLE, _KEPT_BYTES // max(1, self.nbytes)))

    @property
    def element_strides(self) -> tuple[int, ...]:
        """The strides in elements. ValueError if they are not multiples of the element's size."""
        size = self.dtype.itemsize
        if any(step % size for step in self.strides):
            raise ValueError(
                f"strides {self.strides} are not multiples of the {size} bytes of {self.dtype}: "
                "give x.copy()"
            )
        return tuple(step // size for step in self.strides)

    def is_at_own_place(self) -> bool:
        """True if no two elements share bytes."""
        if not self.size:
            return True
        axes = sorted(
            (abs(step), length)
            for step, length in zip(self.strides, self.shape, strict=True)
            if length != 1
        )
        covered = self.dtype.itemsize
        for step, length in axes:
            if step < covered:
                return False
            covered += step * (length - 1)
        return True


_layouts: dict[Any, Layout] = {}


def layout(form: Form, shape: tuple[int, ...], strides: tuple[int, ...], device: Any) -> Layout:
    """The interned layout with these properties."""
    key = (form, shape, strides, device)
    found = _layouts.get(key)
    if found is None:
        if len(_layouts) >= _MOST:
            # Arrays keep their layouts, and plans are found by these; only sharing with new arrays
            # is lost.
            _layouts.clear()
        # dict.setdefault is one C call: all threads get the same layout.
        found = _layouts.setdefault(key, Layout(form, shape, strides, device))
    return found


def contiguous(kind: type[Any], dtype: DType, shape: tuple[int, ...], device: Any) -> Layout:
    """The layout of arrays in C order of this class, on a device."""
    context = getattr(device, "context", None)
    life = None if context is None else context.token
    form = form_for(kind, dtype, False, device, life)
    return layout(form, shape, contiguous_strides(shape, dtype.itemsize), device)


def of_now(old: Layout) -> Layout:
    """The same layout for arrays in the current life of the device's context."""
    form = old.form
    life = None if form.life is None else old.device.context.token
    now = form_for(form.kind, form.dtype, form.has_gaps, form.device, life)
    return layout(now, old.shape, old.strides, old.device)


def on_device(old: Layout, device: Any) -> Layout:
    """The same layout for arrays on another device, in its current life."""
    device.context.enter()
    form = old.form
    where = None if form.device is None else device
    life = None if form.life is None else device.context.token
    there = form_for(form.kind, form.dtype, form.has_gaps, where, life)
    return layout(there, old.shape, old.strides, device)


def raise_if_over(*arrays: Any) -> None:
    """ClosedError if an array among these operands was lost in a reset of its device."""
    for each in arrays:
        form = getattr(each, "form", None)
        if form is not None:
            form.raise_if_over()
