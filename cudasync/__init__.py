"""Write GPU work as if it were serial: dependencies found, streams filled, the serial answer.

Everything a user types is here; `cudasync.testing` is for tests. Every other path may move.
"""

from __future__ import annotations

from cudasync.array import (
    Array,
    BoundKernel,
    In,
    InOut,
    Kernel,
    Module,
    Out,
    array,
    copy,
    empty,
    empty_like,
    from_dlpack,
    hand_over,
    take_over,
    zeros,
    zeros_like,
)
from cudasync.driver import (
    LEGACY_STREAM,
    PER_THREAD_STREAM,
    Device,
    DeviceBuffer,
    Event,
    PinnedBuffer,
    Stream,
    current_device,
    current_stream,
    device_count,
    launch,
    memcpy_async,
    memset_async,
    pinned_empty,
)
from cudasync.engine import Engine, Op, Statistics, TraceEntry, Var, engine, use, waitall
from cudasync.errors import (
    ClosedError,
    CudaError,
    CudasyncError,
    DeadlockError,
    OpError,
    PtxError,
)

__version__ = "0.1.0"

__all__ = [
    "LEGACY_STREAM",
    "PER_THREAD_STREAM",
    "Array",
    "BoundKernel",
    "ClosedError",
    "CudaError",
    "CudasyncError",
    "DeadlockError",
    "Device",
    "DeviceBuffer",
    "Engine",
    "Event",
    "In",
    "InOut",
    "Kernel",
    "Module",
    "Op",
    "OpError",
    "Out",
    "PinnedBuffer",
    "PtxError",
    "Statistics",
    "Stream",
    "TraceEntry",
    "Var",
    "array",
    "copy",
    "current_device",
    "current_stream",
    "device_count",
    "empty",
    "empty_like",
    "engine",
    "from_dlpack",
    "hand_over",
    "launch",
    "memcpy_async",
    "memset_async",
    "pinned_empty",
    "take_over",
    "use",
    "waitall",
    "zeros",
    "zeros_like",
]
