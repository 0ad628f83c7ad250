"""Random programs over a few arrays: run serially in NumPy, as a graph by hand, and by capture.

An op is (verb, target, source, number); it depends on the earlier ops that it conflicts with.
`drop` removes one dependency (earlier, later): the bug that a test plants.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import numpy as np
from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.driver.graph_builder import GraphText, Words
from hypothesis import strategies as st

from cudasync.softgpu import _tables
from cudasync.softgpu.core.scheduling.scheduler import make_scheduler

ARRAYS, STREAMS, COUNT = 3, 3, 4

arrays = st.integers(0, ARRAYS - 1)
ops = st.tuples(st.sampled_from(["set", "mix", "fill", "copy"]), arrays, arrays, st.integers(1, 9))
programs = st.lists(ops, min_size=1, max_size=8)
placements = st.lists(st.integers(0, STREAMS - 1), min_size=8, max_size=8)
schedulers = st.one_of(st.just("fifo"), st.integers(0, 1000).map("seed={}".format))


@contextmanager
def scheduler(text):
    """Inside the block, the installed software GPU uses another scheduler."""
    executor = _tables[0].machine.executor
    before, executor.scheduler = executor.scheduler, make_scheduler(text)
    try:
        yield
    finally:
        executor.scheduler = before


def serially(program):
    """The final content of every array."""
    index = np.arange(COUNT, dtype=np.uint32)
    found = [np.zeros(COUNT, np.uint32) for _ in range(ARRAYS)]
    for verb, target, source, number in program:
        match verb:
            case "set":
                found[target] = index + np.uint32(number)
            case "fill":
                found[target] = np.full(COUNT, number, np.uint32)
            case "copy":
                found[target] = found[source].copy()
            case "mix":
                mixed = found[target] * np.uint32(31) + found[source] * np.uint32(number)
                found[target] = mixed + index
    return [values.tolist() for values in found]


def _reads(op):
    verb, target, source, _ = op
    return {"mix": {target, source}, "copy": {source}}.get(verb, set())


def dependencies(program, drop=None):
    """For each op, the earlier ops that it must come after."""
    found = []
    for later, op in enumerate(program):
        found.append(
            [
                earlier
                for earlier in range(later)
                if (earlier, later) != drop
                and (
                    program[earlier][1] in _reads(op) | {op[1]} or op[1] in _reads(program[earlier])
                )
            ]
        )
    return found


class Player:
    """Arrays, streams and events that programs use."""

    def __init__(self, kernels):
        self.kernels = kernels
        self.words = [Words(COUNT) for _ in range(ARRAYS)]
        self.streams = [ok(driver.cuStreamCreate(1)) for _ in range(STREAMS)]
        self.events = [ok(driver.cuEventCreate(2)) for _ in range(8 + STREAMS)]

    def close(self):
        """Destroy the streams and events, and free the arrays."""
        for stream in self.streams:
            ok(driver.cuStreamDestroy(stream))
        for event in self.events:
            ok(driver.cuEventDestroy(event))
        for words in self.words:
            ok(driver.cuMemFree(words.address))

    def by_hand(self, program, drop=None):
        """A graph with a node for each op and an edge for each dependency."""
        text = GraphText(self.kernels)
        nodes = []
        for op, before in zip(program, dependencies(program, drop), strict=True):
            verb, target, source, number = op
            after = [nodes[index] for index in before]
            to, of = self.words[target], self.words[source]
            match verb:
                case "set":
                    nodes.append(text.set(to, number, after))
                case "fill":
                    nodes.append(text.fill(to, number, after))
                case "copy":
                    nodes.append(text.copy(to, of, to.bytes, after))
                case "mix":
                    nodes.append(text.mix(to, of, number, after))
        return text.graph

    def by_capture(self, program, placement, drop=None):
        """A graph captured from several streams, which wait for each other by events."""
        origin = self.streams[0]
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        ok(driver.cuStreamBeginCapture(origin, mode))
        ok(driver.cuEventRecord(self.events[8], origin))
        for stream in self.streams[1:]:
            ok(driver.cuStreamWaitEvent(stream, self.events[8], 0))
        for index, (op, before) in enumerate(
            zip(program, dependencies(program, drop), strict=True)
        ):
            stream = self.streams[placement[index]]
            for earlier in before:
                ok(driver.cuStreamWaitEvent(stream, self.events[earlier], 0))
            self._enqueue(op, stream)
            ok(driver.cuEventRecord(self.events[index], stream))
        for number, stream in enumerate(self.streams[1:]):
            ok(driver.cuEventRecord(self.events[9 + number], stream))
            ok(driver.cuStreamWaitEvent(origin, self.events[9 + number], 0))
        return ok(driver.cuStreamEndCapture(origin))

    def _enqueue(self, op, stream):
        verb, target, source, number = op
        to, of = self.words[target], self.words[source]
        match verb:
            case "set":
                self.kernels.launch_set(stream, to, number)
            case "fill":
                ok(driver.cuMemsetD32Async(to.address, number, COUNT, stream))
            case "copy":
                ok(driver.cuMemcpyDtoDAsync(to.address, of.address, to.bytes, stream))
            case "mix":
                self.kernels.launch_mix(stream, to, of, number)

    def play(self, graph, schedule, times=1):
        """The arrays' content after `times` launches that begin with zeros."""
        executable = ok(driver.cuGraphInstantiate(graph, 0))
        ok(driver.cuGraphDestroy(graph))
        with nullcontext() if schedule is None else scheduler(schedule):
            stream = self.streams[0]
            for words in self.words:
                ok(driver.cuMemsetD32Async(words.address, 0, COUNT, stream))
            for _ in range(times):
                ok(driver.cuGraphLaunch(executable, stream))
            ok(driver.cuStreamSynchronize(stream))
            ok(driver.cuGraphExecDestroy(executable))
            return [words.read() for words in self.words]
