"""Floor 1. The objects of CUDA, each with an owner and a lifetime, over cuda.bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync import late

if TYPE_CHECKING:
    from cudasync.driver.any_device import ANY
    from cudasync.driver.arguments.argument_packing import PreparedArguments
    from cudasync.driver.arguments.parameter import Parameter
    from cudasync.driver.device import Device, device_count
    from cudasync.driver.graph import Graph, GraphExec, GraphNode
    from cudasync.driver.kernels.kernel import Kernel
    from cudasync.driver.kernels.launch import Launch, launch
    from cudasync.driver.kernels.module import Module
    from cudasync.driver.memory.buffer import DeviceBuffer, DeviceView
    from cudasync.driver.memory.copy import memcpy_async, memset_async
    from cudasync.driver.memory.pinned import PinnedBuffer, pinned_empty
    from cudasync.driver.probe import Choice, chosen, ensure_driver
    from cudasync.driver.result import check
    from cudasync.driver.streams.chosen_stream import (
        LEGACY_STREAM,
        PER_THREAD_STREAM,
        as_stream,
        current_stream,
    )
    from cudasync.driver.streams.current_streams import current_device
    from cudasync.driver.streams.event import Event
    from cudasync.driver.streams.stream import Stream

__all__ = [
    "ANY",
    "LEGACY_STREAM",
    "PER_THREAD_STREAM",
    "Choice",
    "Device",
    "DeviceBuffer",
    "DeviceView",
    "Event",
    "Graph",
    "GraphExec",
    "GraphNode",
    "Kernel",
    "Launch",
    "Module",
    "Parameter",
    "PinnedBuffer",
    "PreparedArguments",
    "Stream",
    "as_stream",
    "check",
    "chosen",
    "current_device",
    "current_stream",
    "device_count",
    "ensure_driver",
    "launch",
    "memcpy_async",
    "memset_async",
    "pinned_empty",
]

if not TYPE_CHECKING:  # With `__getattr__` a type checker would accept any name.
    __getattr__ = late.names(
        __name__,
        {
            "any_device": ("ANY",),
            "arguments.argument_packing": ("PreparedArguments",),
            "arguments.parameter": ("Parameter",),
            "device": ("Device", "device_count"),
            "graph": ("Graph", "GraphExec", "GraphNode"),
            "kernels.kernel": ("Kernel",),
            "kernels.launch": ("Launch", "launch"),
            "kernels.module": ("Module",),
            "memory.buffer": ("DeviceBuffer", "DeviceView"),
            "memory.copy": ("memcpy_async", "memset_async"),
            "memory.pinned": ("PinnedBuffer", "pinned_empty"),
            "probe": ("Choice", "chosen", "ensure_driver"),
            "result": ("check",),
            "streams.chosen_stream": (
                "LEGACY_STREAM",
                "PER_THREAD_STREAM",
                "as_stream",
                "current_stream",
            ),
            "streams.current_streams": ("current_device",),
            "streams.event": ("Event",),
            "streams.stream": ("Stream",),
        },
    )
