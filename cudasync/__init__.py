"""Write GPU work as if it were serial: the library finds the dependencies and fills the streams.

All public names are here; `cudasync.testing` is for tests. Every other path may move.

The first use of a public name imports its module, and what that needs. So a program loads only the
rooms that it uses.
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
    from cudasync.array.creation import array  # From `array`, mypy takes it for the room.
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
    from cudasync.engine import Engine, Op, Statistics, TraceEntry, Var, use, waitall
    from cudasync.engine.engine import engine  # As `array`.
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
    from cudasync.profile.annotation import annotate
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
    """This module's class until its rooms are imported: keeps `engine` and `array` functions."""

    def __setattr__(self, name: str, value: object) -> None:
        # Importing a room would set its name here, and `__getattr__` would never see that name.
        if not (isinstance(value, types.ModuleType) and name in __all__):
            super().__setattr__(name, value)


# Rooms that are public names themselves.
_PUBLIC_ROOMS = ("data", "distributed", "kvstore", "parallel", "random", "xp")
# The highest floor first: its `Kernel` and `Module` extend those of the driver.
_ROOMS = ("array", "graph", "profile", "engine", "driver", "errors")


if not TYPE_CHECKING:  # With `__getattr__` a type checker would accept any name.

    def __getattr__(name: str) -> object:
        if name not in __all__:
            said = f"module {__name__!r} has no attribute {name!r}"
            instead = None if name.startswith("__") else _instead_of(name)
            raise AttributeError(f"{said}: {instead}" if instead else said, name=name)
        # Each of the rooms loads its modules when a name of theirs is asked for.
        rooms = [importlib.import_module(f"{__name__}.{room}") for room in _ROOMS]
        if type(sys.modules[__name__]) is _Door:
            _open()
        if name in _PUBLIC_ROOMS:
            found = importlib.import_module(f"{__name__}.{name}")
        else:
            room = next(each for each in rooms if name in getattr(each, "__all__", vars(each)))
            found = getattr(room, name)
        globals()[name] = found
        return found


# Names of the namespace that people look for here first. (To ask the namespace would load it.)
_OF_XP = frozenset({
    "abs", "all", "any", "arange", "argmax", "asarray", "astype", "concat", "cos", "exp", "eye",
    "float16", "float32", "float64", "full", "full_like", "int16", "int32", "int64", "int8",
    "linspace", "log", "matmul", "max", "maximum", "mean", "min", "minimum", "ones", "ones_like",
    "pi", "prod", "reshape", "sin", "sort", "sqrt", "stack", "std", "sum", "tanh", "uint16",
    "uint32", "uint64", "uint8", "var", "where",
})  # fmt: skip


def _instead_of(name: str) -> str | None:
    """What to write for a name that people look for here."""
    if name == "testing":
        return "write `import cudasync.testing`"
    if name == "synchronize":
        return "write cs.waitall(), or x.wait() for the writers of one array"
    if name == "asnumpy":
        return "write x.numpy()"
    if name in _OF_XP:
        return f"write xp.{name}, with `from cudasync import xp`"
    return None


def _open() -> None:
    """Start what the environment asks for, and what arrays need of the floors above them."""
    namespace = importlib.import_module(f"{__name__}.array.namespace")
    namespace.provide(lambda: importlib.import_module(f"{__name__}.xp"))
    if "CUDASYNC_DUMP_SIGNAL" in os.environ:
        importlib.import_module(f"{__name__}.profile.dump").listen()
    if "CUDASYNC_TOP" in os.environ:
        importlib.import_module(f"{__name__}.profile.remote_queries").answer()
    if "CUDASYNC_NVTX" in os.environ:
        importlib.import_module(f"{__name__}.profile.nvtx_ranges").start()
    # From here on this is a plain module, which has the fastest name look-up.
    sys.modules[__name__].__class__ = types.ModuleType


def __dir__() -> list[str]:
    return sorted(__all__)


sys.modules[__name__].__class__ = _Door
