"""Floor 1, graphs. Event nodes: each launch records an event, or waits for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.driver.graph.work.work import Work

if TYPE_CHECKING:
    from cudasync.driver.device import Device
    from cudasync.driver.streams.event import Event


class Record(Work):
    """Records an event. (cuGraphAddEventRecordNode)"""

    kind = "event_record"
    add = "cuGraphAddEventRecordNode"
    change = "cuGraphExecEventRecordNodeSetEvent"

    def __init__(self, event: Event) -> None:
        self._event = event

    def params(self, device: Device) -> tuple[Any, ...]:
        if self._event.device is not device:
            raise ValueError(f"the event is on {self._event.device!r}, the graph on {device!r}")
        raw = self._event.owned.get()
        self._event.was_recorded = True
        return (raw,)


class WaitFor(Work):
    """Lets later nodes wait for the event's latest record. (cuGraphAddEventWaitNode)"""

    kind = "wait_event"
    add = "cuGraphAddEventWaitNode"
    change = "cuGraphExecEventWaitNodeSetEvent"

    def __init__(self, event: Event) -> None:
        self._event = event

    def params(self, device: Device) -> tuple[Any, ...]:
        return (self._event.owned.get(),)
