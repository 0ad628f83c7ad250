"""The objects of both sides of bench_driver: one stream, event, buffer and three kernels.

Library and baseline use the same objects, so that only the form of the call differs. Each kernel
adds one to a counter. The counter shows how many launches really ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import cudasync as cs

if TYPE_CHECKING:
    from contextlib import ExitStack

COPY_BYTES = 1024

# The counter is a parameter if the kernel has any; otherwise it is the module's own variable.
_HEAD = """
.version 6.4
.target sm_75
.address_size 64
.visible .global .u32 own_counter;
"""

_LAUNCH_0 = """
.visible .entry launch_0()
{
    .reg .u32 %r_old;
    .reg .u64 %rd_counter;
    mov.u64 %rd_counter, own_counter;
    atom.global.add.u32 %r_old, [%rd_counter], 1;
    ret;
}
"""

_LAUNCH_N = """
.visible .entry {name}({parameters})
{{
    .reg .u32 %r_old;
    .reg .u64 %rd_counter;
    ld.param.u64 %rd_counter, [{name}_p0];
    cvta.to.global.u64 %rd_counter, %rd_counter;
    atom.global.add.u32 %r_old, [%rd_counter], 1;
    ret;
}}
"""

# The parameter types of the kernels that have any: pointers, counts and factors, as in usual
# kernels.
TYPES = {
    "launch_3": ("u64", "u32", "f32"),
    "launch_8": ("u64", "u64", "u64", "u32", "u32", "f32", "f32", "s32"),
}


def ptx() -> str:
    """The module's text: three kernels, with 0, 3 and 8 parameters."""
    kernels = [_LAUNCH_0]
    for name, types in TYPES.items():
        declared = ", ".join(
            f".param .{kind} {name}_p{number}" for number, kind in enumerate(types)
        )
        kernels.append(_LAUNCH_N.format(name=name, parameters=declared))
    return _HEAD + "".join(kernels)


class Rig:
    """The objects of the calls. Everything is closed with `closing`."""

    def __init__(self, closing: ExitStack) -> None:
        self.device = cs.Device(0)
        self.device.use()
        self.stream = cs.Stream(self.device)
        self.event = cs.Event(self.device)
        self.target = cs.DeviceBuffer(COPY_BYTES, self.device)
        self.counter = cs.DeviceBuffer(4, self.device)
        for owned in (self.stream, self.event, self.target, self.counter):
            closing.callback(owned.close)
        closing.callback(self.drain)  # first on closing: nothing is freed under running work
        self.source = cs.pinned_empty((COPY_BYTES,), np.uint8)
        self.source[:] = np.arange(COPY_BYTES) % 251
        self._back = cs.pinned_empty((COPY_BYTES,), np.uint8)
        self.module = cs.Module.from_ptx(ptx(), device=self.device, file="bench/driver/rig.py")
        self.stream.record(self.event)
        self.drain()

    def drain(self) -> None:
        """Wait until the stream has done all queued work."""
        self.stream.synchronize()

    def arguments(self, name: str) -> tuple[object, ...]:
        """Values for a kernel's parameters, of the types that a program has."""
        makers = {
            "u64": lambda number: self.counter,
            "u32": lambda number: np.uint32(1000 + number),
            "s32": lambda number: np.int32(-number),
            "f32": lambda number: np.float32(0.5 + number),
        }
        types = TYPES.get(name, ())
        return tuple(makers[kind](number) for number, kind in enumerate(types))

    def count(self) -> int:
        """The counter that the kernels with parameters add to."""
        cs.memcpy_async(self._back, self.counter, stream=self.stream, size_bytes=4)
        self.drain()
        return int(self._back[:4].view(np.uint32)[0])

    def copied(self) -> int:
        """The sum of the bytes that the last copies wrote on the device."""
        cs.memcpy_async(self._back, self.target, stream=self.stream)
        self.drain()
        return int(self._back.sum())

    def wipe(self) -> None:
        """Set the copy's target and the counter to zero."""
        cs.memset_async(self.target, 0, stream=self.stream)
        cs.memset_async(self.counter, 0, stream=self.stream)
        self.drain()
