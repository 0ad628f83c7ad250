"""Write GPU work as if it were serial: dependencies found, streams filled, the serial answer.

Everything a user types is here; `cudasync.testing` is for tests. Every other path may move.

The names are fetched all together when the first of them is asked for. So what needs a part of
the house alone, as a program on the software GPU without the rest, does not load all of it.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync import data, distributed, kvstore, parallel, random, xp
    from cudasync.array import (
        Array,
        BoundKernel,
        In,
        InOut,
        Kernel,
        MemoryStats,
        Module,
        Out,
        PreparedLaunch,
        copy,
        empty,
        empty_cache,
        empty_like,
        from_dlpack,
        hand_over,
        memory_stats,
        strided,
        take_over,
        zeros,
        zeros_like,
    )
    from cudasync.array.creation import array  # From its door, mypy takes it for the room.
    from cudasync.array.fused.function import elementwise  # As `array`.
    from cudasync.array.traced.function import graph_function  # As `array`.
    from cudasync.driver import (
        ANY,
        LEGACY_STREAM,
        PER_THREAD_STREAM,
        Device,
        DeviceBuffer,
        Event,
        Graph,
        GraphExec,
        GraphNode,
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
        CompileError,
        CudaError,
        CudasyncError,
        DeadlockError,
        OpError,
        OutOfMemoryError,
        PtxError,
        RecordingError,
        UnhandledFailureWarning,
        UnpicklableCause,
    )
    from cudasync.graph import Executable, Node, RecordedGraph
    from cudasync.graph.recording import graph  # As `array`.
    from cudasync.profile.annotating import annotate
    from cudasync.profile.dump import dump  # As `array`.
    from cudasync.profile.live import live  # As `array`.
    from cudasync.profile.profile import Profile, profile  # As `array`.
    from cudasync.profile.progress import progress

__version__ = "0.1.0"


__all__ = [
    "ANY",
    "LEGACY_STREAM",
    "PER_THREAD_STREAM",
    "Array",
    "BoundKernel",
    "ClosedError",
    "CompileError",
    "CudaError",
    "CudasyncError",
    "DeadlockError",
    "Device",
    "DeviceBuffer",
    "Engine",
    "Event",
    "Executable",
    "Graph",
    "GraphExec",
    "GraphNode",
    "In",
    "InOut",
    "Kernel",
    "MemoryStats",
    "Module",
    "Node",
    "Op",
    "OpError",
    "Out",
    "OutOfMemoryError",
    "PinnedBuffer",
    "PreparedLaunch",
    "Profile",
    "PtxError",
    "RecordedGraph",
    "RecordingError",
    "Statistics",
    "Stream",
    "TraceEntry",
    "UnhandledFailureWarning",
    "UnpicklableCause",
    "Var",
    "annotate",
    "array",
    "copy",
    "current_device",
    "current_stream",
    "data",
    "device_count",
    "distributed",
    "dump",
    "elementwise",
    "empty",
    "empty_cache",
    "empty_like",
    "engine",
    "from_dlpack",
    "graph",
    "graph_function",
    "hand_over",
    "kvstore",
    "launch",
    "live",
    "memcpy_async",
    "memory_stats",
    "memset_async",
    "parallel",
    "pinned_empty",
    "profile",
    "progress",
    "random",
    "strided",
    "take_over",
    "use",
    "waitall",
    "xp",
    "zeros",
    "zeros_like",
]


class _Door(types.ModuleType):
    """This module until its names are fetched: `engine` and `array` are functions, not rooms."""

    def __setattr__(self, name: str, value: object) -> None:
        # Importing a room would set it, and a name that is set is never asked for.
        if not (isinstance(value, types.ModuleType) and name in __all__):
            super().__setattr__(name, value)


if not TYPE_CHECKING:  # A type checker would take any name for one of these.

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # These only for who asks for one.
        if name in ("data", "distributed", "kvstore", "parallel"):
            globals()[name] = importlib.import_module(f"{__name__}.{name}")
            return globals()[name]
        # The uppermost first: `Kernel` and `Module` of the array layer extend those of the driver.
        rooms = [
            importlib.import_module(f"{__name__}.{room}")
            for room in ("array", "graph", "profile", "engine", "driver", "errors")
        ]
        for room in ("xp", "random"):
            globals()[room] = importlib.import_module(f"{__name__}.{room}")
        for public in __all__:
            if public in ("xp", "random", "data", "distributed", "kvstore", "parallel"):
                continue
            globals()[public] = next(
                vars(room)[public]
                for room in rooms
                if public in getattr(room, "__all__", vars(room))
            )
        importlib.import_module(f"{__name__}.profile.dump").listen()
        if "CUDASYNC_TOP" in os.environ:
            importlib.import_module(f"{__name__}.profile.asking").answer()
        if "CUDASYNC_NVTX" in os.environ:
            importlib.import_module(f"{__name__}.profile.nvtx_ranges").start()
        # From here on a plain module, whose names are found fastest.
        sys.modules[__name__].__class__ = types.ModuleType
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = _Door
