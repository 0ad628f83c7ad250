"""What the GPU does between kernels and beside them: idle times, and the overlap of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cuda.bindings import driver

from bench.driver.baseline import checked
from bench.hardware.figure_rig import Found, Rig
from bench.hardware.graph_figures import CHAIN, built, instantiated, node_parameters

STREAMS = (2, 4, 8)
LENGTHS_US = (5, 20, 100)


def elapsed_us(rig: Rig, enqueue: Callable[[], None]) -> float:
    """Microseconds between two events around what `enqueue` puts on the rig's stream.

    A kernel of three milliseconds goes first, so that the host has enqueued all before it ends.
    """
    begin, end = rig.timed
    rig.spin(rig.stamps - 1, 3000)
    checked(driver.cuEventRecord(begin, rig.stream))
    enqueue()
    checked(driver.cuEventRecord(end, rig.stream))
    rig.settle()
    return 1000 * checked(driver.cuEventElapsedTime(begin, end))


def gaps(rig: Rig, found: Found) -> None:
    """Idle time between two kernels of 20 us, on a stream and in a graph, in two ways.

    By events: the time of 64 kernels less that of their spinning, over 64. It includes the start
    and the end of a kernel. By stamps: from the end of a kernel's loop to the begin of the next.
    """
    count, length = (4, 20) if rig.is_small else (64, 20)
    samples = rig.samples // 10 + 1

    def on_stream() -> None:
        for place in range(count):
            rig.spin(place, length)

    graph = built(
        rig, count, CHAIN, lambda n: node_parameters(rig.spinning, rig.spin_arguments(n, length))
    )
    executable = instantiated(rig, graph.graph)

    def in_graph() -> None:
        checked(driver.cuGraphLaunch(executable, rig.stream))

    events = [rig.new_event() for _ in range(count)]

    def with_records() -> None:
        for place in range(count):
            rig.spin(place, length)
            checked(driver.cuEventRecord(events[place], rig.stream))

    streams = [rig.stream, rig.new_stream()]

    def across_streams() -> None:
        # Each kernel waits for the one before it, on the other stream.
        for place in range(count):
            if place:
                checked(driver.cuStreamWaitEvent(streams[place % 2], events[place - 1], 0))
            rig.spin(place, length, streams[place % 2])
            checked(driver.cuEventRecord(events[place], streams[place % 2]))
        checked(driver.cuStreamWaitEvent(rig.stream, events[count - 1], 0))

    for name, enqueue in (
        ("two launches of a stream", on_stream),
        ("two launches with a record between", with_records),
        ("two launches across streams, by an event", across_streams),
        ("two nodes of a graph", in_graph),
    ):
        by_events, by_stamps = [], []
        for _ in range(samples):
            taken = elapsed_us(rig, enqueue)
            stamps = rig.read(count)
            spun = (stamps[:, 1] - stamps[:, 0]).sum()
            by_events.append((taken - spun) / count)
            by_stamps += (stamps[1:, 0] - stamps[:-1, 1]).tolist()
        found.add(f"gaps: {name}, by events", "us", by_events)
        found.add(f"gaps: {name}, by stamps", "us", by_stamps)


def overlap(rig: Rig, found: Found) -> None:
    """Kernels of one block on several streams, four each: their time, over the time of all.

    4.0 on four streams is all that can be had. `ahead`: all is enqueued before the first kernel
    begins. `as issued`: kernels begin as soon as the host has issued them. `graph`: chains of four,
    side by side, in one graph.
    """
    samples = rig.samples // 20 + 1
    for width in STREAMS:
        streams = [rig.new_stream() for _ in range(width)]
        for length in LENGTHS_US:
            work = Side(rig, streams, length)
            name = f"kernels of {length} us, {width} streams"
            ways = (
                (f"{name}, ahead", work.ahead),
                (f"{name}, as issued", work.as_issued),
                (f"kernels of {length} us, graph of {width} chains", work.in_graph),
            )
            for what, run in ways:
                found.add(f"overlap: {what}", "x", (run() for _ in range(samples)))


class Side:
    """Four kernels on each of several streams, and the same as a graph."""

    each = 4

    def __init__(self, rig: Rig, streams: Sequence[Any], length_us: float) -> None:
        self._rig, self._streams, self._length = rig, streams, length_us
        self._count = self.each * len(streams)
        self._fork = rig.new_event()
        graph = checked(driver.cuGraphCreate(0))
        rig.closing.callback(driver.cuGraphDestroy, graph)
        self._kept = []
        for chain in range(len(streams)):
            before: list[Any] = []
            for step in range(self.each):
                arguments = rig.spin_arguments(chain * self.each + step, length_us)
                what = node_parameters(rig.spinning, arguments)
                self._kept.append(what)
                before = [checked(driver.cuGraphAddKernelNode(graph, before, len(before), what))]
        self._executable = instantiated(rig, graph)

    def ahead(self) -> float:
        self._rig.spin(self._rig.stamps - 1, 3000)
        checked(driver.cuEventRecord(self._fork, self._rig.stream))
        for stream in self._streams:
            checked(driver.cuStreamWaitEvent(stream, self._fork, 0))
        return self.as_issued()

    def as_issued(self) -> float:
        for step in range(self.each):
            for chain, stream in enumerate(self._streams):
                self._rig.spin(chain * self.each + step, self._length, stream)
        return self._shared()

    def in_graph(self) -> float:
        checked(driver.cuGraphLaunch(self._executable, self._rig.stream))
        return self._shared()

    def _shared(self) -> float:
        self._rig.settle()
        stamps = self._rig.read(self._count)
        whole = stamps[:, 1].max() - stamps[:, 0].min()
        return float((stamps[:, 1] - stamps[:, 0]).sum() / max(whole, 1e-3))
