"""A device fault crosses devices along data: each dependent op carries it, on any device.

No other op carries it. A wait for an event of a lost device ends at once. So a stream of another
device runs to its end as if nothing had happened.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest
from helpers.concurrency.thread_crew import comes_true
from helpers.engine_programs.runner import kernels

import cudasync as cs
from cudasync.array.allocation import reap
from cudasync.testing import Latch

pytestmark = pytest.mark.sampled(3)

PATIENCE_S = 20.0
N = 8
WILD = "the wild one"

# The long way plans each op with a record, and no push issues its op at once.
ENGINES = {
    "async": {},
    "one stream": {"streams": 1},
    "the long way": {"max_in_flight": 1_000_000, "trace": True},
    "serial": {"mode": "serial"},
}


@contextmanager
def open_engine(name):
    engine = cs.Engine(**ENGINES[name])
    with cs.use(engine):
        yield engine
        # All devices work again after a reset.
        engine.clear_errors()
        for ordinal in range(3):
            cs.Device(ordinal).reset()
        check_all_work()
    engine.close()


@pytest.fixture(autouse=True)
def _three_devices():
    if cs.device_count() < 3:
        pytest.skip("no such device: three are needed")


@pytest.fixture(params=ENGINES)
def engine(request):
    with open_engine(request.param) as engine:
        yield engine


@pytest.fixture(params=[name for name in ENGINES if name != "serial"])
def running(request):
    """An engine that has ops in flight."""
    with open_engine(request.param) as engine:
        yield engine


def check_all_work():
    """Pass a value around all devices, and assert that no launch has to look for faults."""
    x = [zeros(device) for device in (0, 1, 2)]
    put(x[0], 5)
    for target, source in ((1, 0), (2, 1), (0, 2)):
        cs.copy(x[target], x[source])
        add(x[target], x[target])
    expected = 5 + np.arange(N, dtype=np.int32)
    for _ in range(3):
        expected = 32 * expected + np.arange(N, dtype=np.int32)
    assert x[0].numpy().tolist() == expected.tolist()
    cs.waitall(PATIENCE_S)
    if cs.engine().mode == "async":
        devices = list(cs.engine()._issuer.devices.values())
        # All ops are over, but the threads that ended them may still be clearing up.
        assert comes_true(lambda: not any(streams.concerns for streams in devices))


def spoil(x):
    """Lose the device of `x` by an op that updates `x`."""
    return kernels(x.device)["wild"][1, 1](x, name=WILD)


def put(x, value):
    """Overwrite x with value + index."""
    n = np.uint32(x.size)
    return kernels(x.device)["set"][1, 32](cs.Out(x), np.int32(value), n, np.int32(1))


def add(x, y):
    """Update x by y."""
    one, n = np.int32(1), np.uint32(x.size)
    return kernels(x.device)["mix"][1, 32](x, y, one, n, one, one)


def zeros(device):
    return cs.zeros(N, np.int32, device=device)


def pinned():
    host = cs.pinned_empty(N, np.int32)
    host[:] = -1
    return host


def assert_spoilt(wait):
    with pytest.raises(cs.OpError) as caught:
        wait()
    assert caught.value.op == WILD
    assert isinstance(caught.value.cause, cs.CudaError)
    assert caught.value.cause.sticky


# The fault's routes: the device of each array in turn. None stands for pinned memory.
ROUTES = {
    "up": (0, 1),
    "down": (1, 0),
    "three": (0, 1, 2),
    "three, back": (2, 0, 1),
    "there and further": (0, 1, 1, 2, 1),
    "by the host": (0, None, 1),
    "by the host and on": (1, None, 0, None, 2),
}


def follow(route):
    """Spoil the first array's device; copy and add along a route. Returns arrays, last copy."""
    arrays = [pinned() if place is None else zeros(place) for place in route]
    cs.waitall(PATIENCE_S)
    spoil(arrays[0])
    return arrays, follow_on(arrays)


def follow_on(arrays):
    op = None
    for source, target in pairwise(arrays):
        op = cs.copy(target, source)
        if isinstance(target, cs.Array):
            op = add(target, target)
    return op


QUESTIONS = {
    "numpy": lambda x, op: x.numpy(),
    "numpy of a view": lambda x, op: x[2:5].numpy(),
    "wait": lambda x, op: x.wait(PATIENCE_S),
    "the op's wait": lambda x, op: op.wait(PATIENCE_S),
    "the op's result": lambda x, op: op.result(PATIENCE_S),
    "waitall": lambda x, op: cs.waitall(PATIENCE_S),
    "a host op": lambda x, op: cs.engine().push(lambda: 1, reads=[x]).result(PATIENCE_S),
    "a copy to the host": lambda x, op: cs.copy(np.empty(N, np.int32), x).wait(PATIENCE_S),
    "a kernel": lambda x, op: add(zeros(x.device), x).wait(PATIENCE_S),
    "a launch of a view": lambda x, op: add(x[:4], x[4:]).wait(PATIENCE_S),
    "a prepared launch": lambda x, op: prepared(x).push().wait(PATIENCE_S),
}


def prepared(x):
    one = np.int32(1)
    return kernels(x.device)["mix"].prepare(
        grid=1, block=32, args=(x, x, one, np.uint32(N), one, one)
    )


@pytest.mark.parametrize("route", ROUTES)
def test_a_fault_follows_its_data_from_device_to_device(engine, route):
    arrays, op = follow(ROUTES[route])
    assert_spoilt(lambda: op.wait(PATIENCE_S))
    assert op.is_poisoned
    for each in arrays:
        assert_spoilt(lambda each=each: engine.push(lambda: 1, reads=[each]).result(PATIENCE_S))


@pytest.mark.parametrize("question", QUESTIONS)
def test_whatever_is_asked_first_raises_the_fault(engine, question):
    arrays, op = follow((0, 1))
    for _ in range(2):
        assert_spoilt(lambda: QUESTIONS[question](arrays[-1], op))
    assert op.is_poisoned


def notice_nothing(op):
    """Let the driver learn of the fault, but not the engine."""
    with pytest.raises(cs.CudaError):
        op._device.synchronize()


@pytest.mark.parametrize("notice", [notice_nothing, cs.Op.exception, cs.Op.done])
def test_what_is_pushed_after_the_fault_carries_it_too(engine, notice):
    arrays = [zeros(0), zeros(1), zeros(2)]
    cs.waitall(PATIENCE_S)
    op = spoil(arrays[0])
    notice(op) if engine.mode == "async" else None
    last = follow_on(arrays)
    assert_spoilt(lambda: last.wait(PATIENCE_S))
    # The failure is known by now.
    assert_spoilt(add(arrays[1], arrays[1]).wait)
    assert_spoilt(cs.copy(arrays[1], arrays[2]).wait)


@pytest.mark.parametrize("kind", ["device op", "host op"])
def test_a_fault_crosses_by_a_variable_alone(engine, kind):
    x, token = zeros(0), cs.Var("token")
    wild = kernels(x.device)["wild"]
    cs.waitall(PATIENCE_S)

    def lose(stream):
        cs.launch(wild, grid=1, args=(x,), stream=stream)

    engine.push(lose, writes=[x, token], device=cs.Device(0), name=WILD)
    where = {"device": cs.Device(1)} if kind == "device op" else {}
    op = engine.push(lambda *stream: None, reads=[token], writes=[token], **where)
    assert_spoilt(lambda: op.wait(PATIENCE_S))
    assert_spoilt(lambda: token.wait(PATIENCE_S))
    heals = engine.push(lambda stream: None, writes=[token], device=cs.Device(1))
    heals.wait(PATIENCE_S)
    token.wait(PATIENCE_S)


def test_what_is_overwritten_behind_a_fault_is_well_again(engine):
    """WAW: the put replaces the copy from the lost device, so the fault goes no further."""
    x, y, z = zeros(0), zeros(1), zeros(2)
    cs.waitall(PATIENCE_S)
    spoil(x)
    copy = cs.copy(y, x)
    put(y, 5).wait(PATIENCE_S)
    cs.copy(z, y).wait(PATIENCE_S)
    assert z.numpy().tolist() == y.numpy().tolist() == [5 + i for i in range(N)]
    assert_spoilt(copy.wait)


def test_what_is_overwritten_in_part_is_well_there(engine):
    x, y = zeros(0), zeros(1)
    cs.waitall(PATIENCE_S)
    spoil(x)
    cs.copy(y, x)
    put(y[2:6], 5)
    assert y[2:6].numpy().tolist() == [5, 6, 7, 8]
    assert_spoilt(y[1:3].numpy)
    assert_spoilt(y.numpy)
    assert y[3:5].numpy().tolist() == [6, 7]


def test_what_a_lost_device_was_to_read_can_be_written(engine):
    """WAR: the overwriting op does not carry the fault of the reader."""
    x, y = zeros(0), zeros(1)
    put(y, 5)
    cs.waitall(PATIENCE_S)
    spoil(x)
    read = cs.copy(x, y)
    add(y, y).wait(PATIENCE_S)
    assert y.numpy().tolist() == [32 * (5 + i) + i for i in range(N)]
    assert_lost(read)


def test_what_has_nothing_to_do_with_the_fault_goes_on_beside_it(engine):
    x, y, other = zeros(0), zeros(1), zeros(1)
    cs.waitall(PATIENCE_S)
    spoil(x)
    cs.copy(y, x)
    ops = [add(other, other), put(other, 3), add(other, other)]
    assert_spoilt(y.numpy)
    ops += [add(other, other), put(other, 3)]
    for op in ops:
        op.wait(PATIENCE_S)
    assert other.numpy().tolist() == [3 + i for i in range(N)]


def test_memory_that_a_fault_has_reached_is_given_back(engine):
    """A free only overwrites: it is ordered behind the copy, and does not fail."""
    x, y = zeros(0), zeros(1)
    cs.waitall(PATIENCE_S)
    spoil(x)
    copy = cs.copy(y, x)
    del y
    reap()
    with pytest.raises(cs.OpError):
        cs.waitall(PATIENCE_S)
    assert copy.is_poisoned
    # These are the kernel and the copy.
    assert engine.statistics().failed_ops == 2


def test_a_fault_crosses_from_engine_to_engine(engine):
    x, y, z = zeros(0), zeros(1), zeros(2)
    cs.waitall(PATIENCE_S)
    with cs.Engine() as other:
        spoil(x)
        cs.copy(y, x)
        with cs.use(engine):
            add(y, y)
            cs.copy(z, y)
        assert_spoilt(add(z, z).wait)
        with cs.use(engine):
            assert_spoilt(z.numpy)
        other.clear_errors()


@pytest.fixture
def latch():
    with Latch(cs.Device(2)) as latch:
        yield latch


def hold_and_set(engine, latch, x, value):
    """An op of device 2 that overwrites x once the latch is released."""

    def late(stream):
        latch.hold(stream)
        cs.memset_async(x, value, stream=stream)

    return engine.push(late, writes=[x], device=cs.Device(2))


def lose_device_0():
    """Lose device 0 without the engine's knowledge, on a stream that nothing blocks."""
    device = cs.Device(0)
    x, wild = cs.DeviceBuffer(4, device=device), kernels(device)["wild"]
    stream = cs.Stream(device)
    cs.launch(wild, grid=1, args=(x.ptr,), stream=stream)
    with pytest.raises(cs.CudaError):
        stream.synchronize()


def assert_lost(op):
    with pytest.raises(cs.OpError) as caught:
        op.wait(PATIENCE_S)
    assert isinstance(caught.value.cause, cs.CudaError)
    assert caught.value.cause.sticky


def test_who_comes_after_a_lost_op_comes_after_what_that_waited_for(running, latch):
    """Devices 2, 0 and 1 write in turn, and device 0 is lost. If device 1 waited for device 0
    alone, the first write would land last and stay."""
    y = zeros(1)
    cs.waitall(PATIENCE_S)
    first = hold_and_set(running, latch, y, 1)
    lost = running.push(lambda stream: None, writes=[y], device=cs.Device(0))
    last = put(y, 5)
    lose_device_0()
    # Each question lets a device go on with all that it can do.
    assert not any(last.done() for _ in range(2 * N))
    latch.release()
    first.wait(PATIENCE_S)
    last.wait(PATIENCE_S)
    assert y.numpy().tolist() == [5 + i for i in range(N)]
    assert_lost(lost)


def test_who_was_held_up_by_a_lost_op_ends_after_it(running, latch):
    """Ops that device 1 has executed are not over before the fate of device 0's op is known."""
    y, z = zeros(1), zeros(1)
    cs.waitall(PATIENCE_S)
    first = hold_and_set(running, latch, y, 1)
    lost = running.push(lambda stream: None, reads=[y], writes=[z], device=cs.Device(0))
    ops = [lost, *[add(z, z) for _ in range(40)]]
    lose_device_0()
    assert not any(op.done() for op in ops)
    latch.release()
    first.wait(PATIENCE_S)
    for op in ops:
        assert_lost(op)


def test_a_thousand_ops_that_hang_on_one_end_together(running, latch):
    y, z = zeros(1), zeros(1)
    cs.waitall(PATIENCE_S)
    hold_and_set(running, latch, y, 1)
    running.push(lambda stream: None, reads=[y], writes=[z], device=cs.Device(0))
    ops = [add(z, z) for _ in range(1500)]
    lose_device_0()
    assert ops[-1].done() is False
    latch.release()
    assert_lost(ops[-1])
    assert all(op.is_poisoned for op in ops)


def test_who_waits_for_a_device_that_is_reset_fails_with_it(running):
    with Latch(cs.Device(0)) as held:
        y, token = zeros(1), cs.Var("token")
        cs.waitall(PATIENCE_S)
        running.push(held.hold, writes=[token], device=cs.Device(0))
        # A copy would read freed memory, and lose its own device.
        behind = running.push(lambda stream: None, reads=[token], writes=[y], device=cs.Device(1))
        ops = [behind, add(y, y)]
        cs.Device(0).reset()
    for op in ops:
        with pytest.raises(cs.OpError):
            op.wait(PATIENCE_S)
    put(y, 5).wait(PATIENCE_S)
    assert y.numpy().tolist() == [5 + i for i in range(N)]
