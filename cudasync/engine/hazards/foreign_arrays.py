"""Floor 2. Other libraries' arrays in a push: their enqueued work comes first.

An array that names a stream in its `__cuda_array_interface__` is ready after the work enqueued on
that stream so far. So an op that waits for the stream, on the device, is pushed before the op that
uses the array. An object with a region is the library's, or the floor above handled it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.driver import Stream
from cudasync.driver.interchange.protocols import awaited_stream
from cudasync.driver.memory.operand import device_of_address
from cudasync.engine.foreign_streams import come_after, refuse_captured
from cudasync.engine.hazards.variable import Var

if TYPE_CHECKING:
    from cudasync.engine.engine import Engine


def await_strangers(engine: Engine, *accesses: Any) -> None:
    """Order later ops of `engine` on foreign arrays in `accesses` behind their streams."""
    for things in accesses:
        for thing in things if isinstance(things, (list, tuple, set, frozenset)) else (things,):
            if isinstance(thing, (Var, np.ndarray)) or hasattr(thing, "region"):
                continue
            interface = getattr(thing, "__cuda_array_interface__", None)
            handle = awaited_stream(interface) if isinstance(interface, dict) else None
            if handle is not None:
                assert isinstance(interface, dict)
                device = device_of_address(thing, int(interface["data"][0] or 0))
                stream = Stream.from_handle(handle, device)
                refuse_captured(stream)
                come_after(engine, stream.record(), [thing])
