"""The check finds races between commands if and only if brute force finds an unordered pair."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest
from cuda.bindings import driver
from helpers.checks.command_order import LEGACY, Call, Ordering
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.driver.extensions import sanitizer
from cudasync.softgpu.core.checks import order, shadow
from cudasync.testing import check

pytestmark = pytest.mark.lazy

SIZE = 64
SPACES = ("a", "b", "pinned")
STREAMS = (LEGACY, 1, 2, 3, 4)
# A call that is drawn twice as often is listed twice.
DRAWN = (
    *("fill", "fill", "copy", "kernel", "record", "record", "wait", "wait"),
    *("wait for event", "wait for stream", "wait for all", "host reads", "host writes"),
)


def ok(result):
    assert not result[0], result
    return result[1] if len(result) > 1 else None


class Playground:
    """The memory and streams of a program, new for each run, so that no byte has an earlier
    history."""

    def __init__(self) -> None:
        cs.Device(0).use()
        self.saxpy = cs.Module.from_file("ptx/kernels/saxpy.ptx").kernel("saxpy")
        self.places = {name: int(ok(driver.cuMemAlloc(SIZE))) for name in ("a", "b")}
        self.places["pinned"] = int(ok(driver.cuMemHostAlloc(SIZE, 0)))
        for address in self.places.values():
            ok(driver.cuMemsetD8(address, 0, SIZE))
        ok(driver.cuCtxSynchronize())
        self.streams = {i: ok(driver.cuStreamCreate(1 - i % 2)) for i in STREAMS if i}
        self.streams[LEGACY] = 0
        self.events = [ok(driver.cuEventCreate(2)) for _ in range(3)]

    def close(self) -> None:
        ok(driver.cuCtxSynchronize())
        for number, stream in self.streams.items():
            if number:
                ok(driver.cuStreamDestroy(stream))
        for event in self.events:
            ok(driver.cuEventDestroy(event))
        for name in ("a", "b"):
            ok(driver.cuMemFree(self.places[name]))
        ok(driver.cuMemFreeHost(self.places["pinned"]))

    def play(self, call: Call) -> None:
        stream = self.streams[call.stream]
        match call.what:
            case "fill":
                ((space, start, end),) = call.writes
                ok(driver.cuMemsetD8Async(self.places[space] + start, 1, end - start, stream))
            case "copy":
                (source,), (target,) = call.reads, call.writes
                size = source[2] - source[1]
                at = [self.places[each[0]] + each[1] for each in (target, source)]
                ok(driver.cuMemcpyAsync(*at, size, stream))
            case "kernel":
                x, y = call.reads
                arguments = (1.0, *(self.places[e[0]] + e[1] for e in (x, y)), (x[2] - x[1]) // 4)
                launch(self.saxpy, arguments, stream)
            case "record":
                ok(driver.cuEventRecord(self.events[call.event], stream))
            case "wait":
                ok(driver.cuStreamWaitEvent(stream, self.events[call.event], 0))
            case "wait for event":
                ok(driver.cuEventSynchronize(self.events[call.event]))
            case "wait for stream":
                ok(driver.cuStreamSynchronize(stream))
            case "wait for all":
                ok(driver.cuCtxSynchronize())
            case "host reads" | "host writes":
                ((space, start, end),) = call.reads + call.writes
                writes = bool(call.writes)
                sanitizer.host(self.places[space] + start, end - start, writes=writes)


def launch(kernel, arguments, stream):
    kinds = (ctypes.c_float, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)
    given = (arguments, kinds)
    ok(driver.cuLaunchKernel(kernel.function, 1, 1, 1, 32, 1, 1, 0, stream, given, 0))


def ranges(spaces):
    cut = st.tuples(st.integers(0, 3), st.integers(1, 2))
    return st.builds(
        lambda space, at: (space, 16 * at[0], min(SIZE, 16 * (at[0] + at[1]))),
        st.sampled_from(spaces),
        cut,
    )


@st.composite
def copies(draw, stream):
    source, target = draw(ranges(SPACES)), draw(ranges(SPACES))
    size = min(source[2] - source[1], target[2] - target[1])
    if source[0] == target[0]:
        target = ("b" if source[0] == "a" else "a", target[1], target[2])
    parts = [(space, start, start + size) for space, start, _ in (source, target)]
    return Call("copy", stream, reads=(parts[0],), writes=(parts[1],))


@st.composite
def kernels(draw, stream):
    x, y = draw(ranges(("a",))), draw(ranges(("b",)))
    size = min(x[2] - x[1], y[2] - y[1])
    x, y = ("a", x[1], x[1] + size), ("b", y[1], y[1] + size)
    return Call("kernel", stream, reads=(x, y), writes=(y,))


@st.composite
def calls(draw):
    stream = draw(st.sampled_from(STREAMS))
    event = draw(st.integers(0, 2))
    what = draw(st.sampled_from(DRAWN))
    if what == "fill":
        return Call(what, stream, writes=(draw(ranges(SPACES)),))
    if what == "copy":
        return draw(copies(stream))
    if what == "kernel":
        return draw(kernels(stream))
    if what == "host reads":
        return Call(what, reads=(draw(ranges(("pinned",))),))
    if what == "host writes":
        return Call(what, writes=(draw(ranges(("pinned",))),))
    return Call(what, stream, event)


PROGRAMS = st.lists(calls(), min_size=2, max_size=14)


def found(program):
    """The races that the check finds."""
    place = Playground()

    def run():
        for call in program:
            place.play(call)

    try:
        return check(run, kinds=["race"])
    finally:
        place.close()


@given(PROGRAMS)
def test_a_race_is_found_if_and_only_if_there_is_one(program):
    races = Ordering(program).races()
    assert bool(found(program)) == bool(races), races


ORDERED = ("record", "wait", "wait for event", "wait for stream", "wait for all")


def put_in_order(program):
    """The program with added waits so that nothing races: a wait before each call that would
    race."""
    safe: list[Call] = []
    for call in program:
        if Ordering([*safe, call]).races():
            last = max(i for i, _ in Ordering([*safe, call]).races())
            if call.what.startswith("host"):
                safe.append(Call("wait for stream", safe[last].stream))
            else:
                safe.append(Call("record", safe[last].stream, 2))
                safe.append(Call("wait", call.stream, 2))
            if Ordering([*safe, call]).races():
                safe.append(Call("wait for all"))
        safe.append(call)
    return safe


@given(PROGRAMS, st.data())
def test_an_edge_that_is_removed_is_missed_where_it_is_needed(program, data):
    program = put_in_order(program)
    assert not Ordering(program).races()
    assert not found(program)
    edges = [i for i, call in enumerate(program) if call.what in ORDERED]
    if edges:
        gone = data.draw(st.sampled_from(edges))
        program[gone] = replace(program[gone], what="nothing")
        assert bool(found(program)) == bool(Ordering(program).races())


FILL = Call("fill", 2, writes=(("a", 0, 16),))
IN_ORDER = {
    "events": [FILL, Call("record", 2, 0), Call("wait", 4, 0), replace(FILL, stream=4)],
    "the default stream": [replace(FILL, stream=1), replace(FILL, stream=LEGACY)],
    "the host": [FILL, Call("wait for stream", 2), replace(FILL, stream=4)],
}


@pytest.mark.parametrize("program", IN_ORDER.values(), ids=IN_ORDER)
def test_clocks_that_forget_what_they_join_cry_where_nothing_is_wrong(program, monkeypatch):
    """The planted bug, which the tests above would find."""
    assert not Ordering(program).races()
    assert not found(program)
    monkeypatch.setattr(order, "_joined", lambda left, right: left)
    assert found(program)


def test_a_race_that_is_overlooked_makes_the_test_red(monkeypatch):
    program = [FILL, replace(FILL, stream=4)]
    assert Ordering(program).races()
    assert found(program)
    monkeypatch.setattr(shadow.Touch, "races", lambda self, other: False)
    assert not found(program)
