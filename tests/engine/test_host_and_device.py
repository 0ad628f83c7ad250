"""Host and device ops that depend on each other, both ways and in turn; no push blocks.

Also host ops that drive the device themselves, and engines that share the memory they write.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, engine_of, hasty, held_by
from helpers.repository.subprocesses import assert_runs_clean

import cudasync as cs
from cudasync.testing import Latch

KERNELS = Path(__file__).parent.parent / "helpers" / "kernels.ptx"


@pytest.fixture
def set_():
    return cs.Module.from_file(KERNELS).kernel("set")


@pytest.fixture
def mix():
    return cs.Module.from_file(KERNELS).kernel("mix")


def test_a_chain_that_alternates_is_pushed_whole_behind_a_held_host_op(device):
    gate, x, log = threading.Event(), cs.Var("x"), []
    with engine_of(workers=1) as engine:
        engine.push(held_by(gate), writes=[x])
        ops = []
        for index in range(60):
            if index % 2:
                op = engine.push(lambda i=index: log.append(i), reads=[x], writes=[x])
            else:
                op = engine.push(
                    lambda stream, i=index: log.append(i), reads=[x], writes=[x], device=device
                )
            ops.append(op)
        assert not any(op.done() for op in ops)
        gate.set()
        ops[-1].wait(PATIENCE_S)
    assert log == list(range(60))


def test_a_chain_that_alternates_is_pushed_whole_behind_a_held_stream(device):
    x, log = cs.Var("x"), []
    with Latch(device) as latch, engine_of(workers=1) as engine:
        engine.push(latch.hold, writes=[x], device=device)
        for index in range(30):
            engine.push(lambda i=index: log.append(i), reads=[x], writes=[x])
            engine.push(lambda stream: None, reads=[x], writes=[x], device=device)
        bystander = engine.push(lambda: len(log))
        assert bystander.result(PATIENCE_S) == 0
        latch.release()
        engine.waitall(PATIENCE_S)
    assert log == list(range(30))


def test_a_diamond_of_host_and_device_ops_joins(device, set_, mix):
    """A host op writes x, a kernel y from x, a host op z from x, and a kernel w from y and z."""
    gate = threading.Event()
    x = cs.pinned_empty((8,), np.int32)
    z = cs.pinned_empty((8,), np.int32)
    x[:] = z[:] = 0
    with engine_of(workers=2) as engine:
        y, w, other = (cs.zeros(8, np.int32) for _ in range(3))

        def fill() -> None:
            assert gate.wait(PATIENCE_S)
            x[:] = 5

        def double() -> None:
            z[:] = 2 * x

        engine.push(fill, writes=[x])
        cs.copy(y, x)
        engine.push(double, reads=[x], writes=[z])
        cs.copy(other, z)
        mix[1, 8](w, y, np.int32(1), np.uint32(8))
        op = mix[1, 8](w, other, np.int32(1), np.uint32(8))
        set_[1, 8](y, np.int32(0), np.uint32(8))
        assert not op.done()
        gate.set()
        index = np.arange(8)
        assert w.numpy().tolist() == (31 * (5 + index) + 10 + index).tolist()


def test_many_threads_push_alternating_chains_onto_crossed_variables(device):
    x, y, log = cs.Var("x"), cs.Var("y"), []
    with engine_of(workers=2) as engine, hasty(), Crew() as crew:

        def pusher(variables: list[cs.Var]) -> None:
            for _ in range(40):
                engine.push(lambda: log.append("host"), writes=variables)
                engine.push(lambda stream: log.append("device"), writes=variables, device=device)

        for variables in ([x, y], [y, x], [x]):
            crew.start(pusher, variables)
    assert (log.count("host"), log.count("device")) == (120, 120)


def test_a_host_op_may_drive_the_device_itself(device, set_):
    """The op has its own stream, buffer and wait, and an array that it has declared."""
    with engine_of(workers=2) as engine:
        x = cs.zeros(8, np.int32)

        def swap(value: int) -> list[int]:
            host = cs.pinned_empty((8,), np.int32)
            with cs.Stream(device) as stream:
                buffer = cs.DeviceBuffer(32, device, stream=stream)
                args = (buffer, np.int32(value), np.uint32(8))
                cs.launch(set_, grid=1, block=8, args=args, stream=stream)
                cs.memcpy_async(host, x, stream=stream)
                cs.memcpy_async(x, buffer, stream=stream)
                stream.synchronize()
                buffer.close(stream)
            return host.tolist()

        ops = []
        for value in range(0, 60, 3):
            set_[1, 8](x, np.int32(value), np.uint32(8))
            ops.append(engine.push(lambda v=value + 1: swap(v), reads=[x], writes=[x]))
            ops.append(engine.push(lambda v=value + 2: swap(v), reads=[x], writes=[x]))
        expected = [list(range(v, v + 8)) for v in range(60) if v % 3 < 2]
        assert [op.result(PATIENCE_S) for op in ops] == expected
        assert x.numpy().tolist() == list(range(59, 67))


def test_host_ops_make_arrays_launch_kernels_and_read_them(device, set_):
    with engine_of(workers=2) as engine:

        def compute(value: int) -> int:
            x = cs.zeros(8, np.int32)
            set_[1, 8](x, np.int32(value), np.uint32(8))
            y = cs.empty_like(x)
            cs.copy(y, x)
            return int(y.numpy().sum())

        ops = [engine.push(lambda v=value: compute(v)) for value in range(30)]
        assert [op.result(PATIENCE_S) for op in ops] == [8 * v + 28 for v in range(30)]


def test_engines_share_variables_and_arrays_in_one_order(device, mix):
    log, rounds = [], 20
    x = cs.Var("x")
    engines = [cs.Engine(workers=1, streams=1) for _ in range(3)]
    with engine_of():
        shared = cs.zeros(8, np.int32)
        ones = cs.array(np.ones(8, np.int32))
        cs.waitall(PATIENCE_S)
        for index in range(rounds * len(engines)):
            engine = engines[index % len(engines)]
            with cs.use(engine):
                engine.push(lambda i=index: log.append(i), reads=[x], writes=[x])
                mix[1, 8](shared, ones, np.int32(index), np.uint32(8))
                engine.push(lambda stream: None, reads=[x], writes=[x], device=device)
        x.wait(PATIENCE_S)
        expected = np.zeros(8, np.int32)
        with np.errstate(over="ignore"):
            for index in range(rounds * len(engines)):
                expected = 31 * expected + np.int32(index) + np.arange(8, dtype=np.int32)
        assert shared.numpy().tolist() == expected.tolist()
    assert log == list(range(rounds * len(engines)))
    for engine in engines:
        engine.close()


def test_engines_in_threads_of_their_own_share_a_variable():
    x, values = cs.Var("x"), [0]

    def bump() -> None:
        value = values[0]
        values[0] = value + 1

    with hasty(), Crew() as crew:

        def pusher() -> None:
            with cs.Engine(workers=2) as mine:
                for _ in range(200):
                    mine.push(bump, writes=[x])

        for _ in range(3):
            crew.start(pusher)
    assert values == [600]


DEVICES = """
from pathlib import Path
devices = [cs.Device(ordinal) for ordinal in range(cs.device_count())]
assert len(devices) == 3
modules = [cs.Module.from_file("tests/helpers/kernels.ptx", device=device) for device in devices]
kernels = [module.kernel("mix") for module in modules]
engine = cs.Engine(workers=2, streams=2)
"""


def test_work_and_data_go_around_three_devices():
    assert_runs_clean(
        DEVICES
        + """
with engine:
    arrays = [cs.zeros(8, np.int32, device=device) for device in devices]
    cs.waitall(PATIENCE_S)
    latches = [Latch(device) for device in devices]
    for array, latch, device in zip(arrays, latches, devices):
        engine.push(latch.hold, writes=[array], device=device)
    expected = [np.zeros(8, np.int32) for _ in devices]
    for step in range(12):
        here, there = step % 3, (step + 1) % 3
        n = np.uint32(8)
        kernels[here][1, 8](arrays[here], arrays[here], np.int32(step), n)
        expected[here] = expected[here] * np.int32(31 + step) + np.arange(8, dtype=np.int32)
        cs.copy(arrays[there], arrays[here])
        expected[there] = expected[here].copy()
    last = engine.push(lambda: "host", reads=arrays)
    assert not last.done()
    for latch in reversed(latches):
        latch.release()
    assert last.result(PATIENCE_S) == "host"
    for array, values in zip(arrays, expected):
        assert array.numpy().tolist() == values.tolist()
""",
        CUDASYNC_DEVICE="soft",
        CUDASYNC_SOFTGPU_DEVICES="3",
    )


def test_a_device_that_is_held_or_has_failed_leaves_the_others_alone():
    assert_runs_clean(
        DEVICES
        + """
def fail(stream):
    raise ValueError("planned")
x, y, z = cs.Var(), cs.Var(), cs.Var()
with Latch(devices[0]) as latch:
    held = engine.push(latch.hold, writes=[x], device=devices[0])
    behind = engine.push(lambda stream: 1, reads=[x], device=devices[1])
    engine.push(fail, writes=[y], device=devices[1], name="broken")
    for _ in range(10):
        engine.push(lambda stream: None, reads=[z], writes=[z], device=devices[2])
        engine.push(lambda: None, reads=[z], writes=[z]).wait(PATIENCE_S)
    poisoned = engine.push(lambda stream: None, reads=[y], device=devices[2])
    assert poisoned.exception(PATIENCE_S).op == "broken"
    assert not held.done() and not behind.done()
    latch.release()
behind.wait(PATIENCE_S)
engine.clear_errors()
engine.close()
""",
        CUDASYNC_DEVICE="soft",
        CUDASYNC_SOFTGPU_DEVICES="3",
    )
