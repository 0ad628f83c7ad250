"""Cellar. Devices and contexts.

A device has one arena of memory and one primary context; other contexts may be created beside
it. A context owns streams, events, modules and allocations. A context keeps its first fault: from
then on every call on it returns the fault's code. A reset ends this for a primary context,
destruction for any other. Other contexts and devices are unaffected.
"""

from __future__ import annotations

from threading import current_thread
from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.compute_capability import DEFAULT
from cudasync.softgpu.core.driver_types.handles import new_handle
from cudasync.softgpu.core.driver_types.memory_locations import DEVICE, Location
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.driver_types.thread_state import PerThread
from cudasync.softgpu.core.memory.allocation_table import AllocationTable
from cudasync.softgpu.core.memory.arena import Arena
from cudasync.softgpu.core.memory.memory_pools import Pool
from cudasync.softgpu.core.streams.streams import Stream

if TYPE_CHECKING:
    from cudasync.softgpu.core.driver_types.compute_capability import Capability
    from cudasync.softgpu.core.graphs.stream_capture import Capture
    from cudasync.softgpu.core.memory.quarantine import Quarantine
    from cudasync.softgpu.core.modules.modules import Module
    from cudasync.softgpu.core.streams.streams import Event
    from cudasync.softgpu.interface.launch import AllocationSnapshot


class Device:
    """One software GPU."""

    def __init__(
        self,
        ordinal: int,
        total_bytes: int,
        quarantine: Quarantine,
        capability: Capability = DEFAULT,
    ) -> None:
        self.ordinal = ordinal
        self.capability = capability
        self.name = "cudasync software GPU"
        self.total_bytes = total_bytes
        self.memory = AllocationTable(Arena(total_bytes, quarantine))
        self.primary = Context(self, is_primary=True)
        self.primary_flags = 0
        self.primary_uses = 0
        self.pool = Pool(self, Location(DEVICE, ordinal), is_default=True)
        self.uuid = b"cudasync-softgpu"[:15] + bytes([ordinal & 0xFF])


class Context:
    """A context: a thread makes it current, and it owns everything made meanwhile."""

    def __init__(self, device: Device, *, is_primary: bool = False, flags: int = 0) -> None:
        self.device = device
        self.is_primary = is_primary
        self.flags = flags
        self.handle = new_handle()
        self.limits: dict[int, int] = {}
        self.cache_config = 0
        # The number of attaches without a detach; a detach at 0 ends the context.
        self.attached = 0
        self.revive()

    def revive(self) -> None:
        """Start over, as after a reset: no streams, no error."""
        self.is_destroyed = False
        self.error = 0
        self.error_detail = ""
        # In order of creation. Other threads add to it, so readers copy it, which is one C call.
        self.streams: dict[Stream, None] = {}
        self.events: set[Event] = set()
        self.modules: set[Module] = set()
        self.peers: set[Device] = set()
        # The first of them is the gate, even if several threads make gates at once.
        self.gates: list[Stream] = []
        # The captures with blocking streams of this context; see `Captures`.
        self.capturing: dict[Capture, None] = {}
        self.legacy = Stream(self, name="the legacy default stream", is_legacy=True)
        self.streams[self.legacy] = None
        self._per_thread: PerThread[_DefaultStream] = PerThread(_DefaultStream, {})
        self.snapshot: tuple[object, AllocationSnapshot] | None = None

    @property
    def gate(self) -> Stream | None:
        """All later commands wait for this stream, also commands of later streams."""
        return self.gates[0] if self.gates else None

    @property
    def per_thread(self) -> Stream:
        """The calling thread's own default stream."""
        own = self._per_thread.own
        if own.stream is None:
            own.stream = Stream(self, name=f"the default stream of {current_thread().name}")
            self.enter(own.stream)
        return own.stream

    def enter(self, stream: Stream) -> None:
        """Add a new stream to the context, behind the gate if there is one."""
        self.streams[stream] = None
        # Only now: `hold_context` first stores the gate's tail, then goes through the streams.
        gate = self.gate
        if gate is not None:
            stream.begin_behind(gate)

    def set_error(self, failure: DriverFailure) -> None:
        """Keep the first fault."""
        if not self.error:
            self.error = failure.code
            self.error_detail = failure.detail

    def failure(self) -> DriverFailure:
        """The kept fault, as an exception."""
        return DriverFailure(self.error, self.error_detail)


class _DefaultStream:
    """A thread's default stream, which ends with the thread."""

    __slots__ = ("stream",)

    def __init__(self) -> None:
        self.stream: Stream | None = None

    def __del__(self) -> None:
        stream = self.stream
        if stream is None:
            return
        # In this order: a thread that empties the stream after the first line also removes it. The
        # copy reads the deque that the other thread changes, so one of the two sees the other.
        stream.is_closed = True
        if not stream.pending.copy():
            stream.context.streams.pop(stream, None)
