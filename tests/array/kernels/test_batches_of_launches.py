"""`push_many` with prepared launches, and with functions that enqueue their own work."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from helpers.driver.call_counts import counted_calls

import cudasync as cs
from cudasync import driver
from cudasync.array.allocation import reap

KERNELS = Path(__file__).parents[2] / "helpers" / "kernels.ptx"
PATIENCE_S = 20.0
WILD = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry wild(.param .u64 target)
{
    .reg .b64 %rd_target;
    ld.param.u64 %rd_target, [target];
    cvta.to.global.u64 %rd_target, %rd_target;
    st.global.u32 [%rd_target + 1073741824], 1;
    ret;
}
.visible .entry follow(.param .u64 table)
{
    .reg .b64 %rd_table;
    ld.param.u64 %rd_table, [table];
    ld.global.u64 %rd_table, [%rd_table];
    st.global.u32 [%rd_table], 1;
    ret;
}
"""


@pytest.fixture(params=["async", "serial", "traced", "limited"])
def engine(request):
    """An engine for each way that a push may take."""
    options = {"serial": {"mode": "serial"}, "traced": {"trace": True}}
    options["limited"] = {"max_in_flight": 3}
    with cs.Engine(**options.get(request.param, {})) as engine:
        yield engine


@pytest.fixture
def module():
    return cs.Module.from_file(KERNELS)


@pytest.fixture
def mix(module):
    """mix(target, source, factor, n): target = 31 * target + factor * source + index."""
    return module.kernel("mix")


def prepared(mix: cs.Kernel, target: object, source: object, factor: int = 2):
    return mix.prepare(grid=1, block=8, args=(target, source, np.int32(factor), np.uint32(8)))


def mixed(target: np.ndarray, source: np.ndarray, factor: int = 2) -> np.ndarray:
    return (31 * target + factor * source + np.arange(8)).astype(np.int32)


def ones() -> cs.Array:
    return cs.array(np.ones(8, np.int32))


def fail(*_: object) -> None:
    raise ValueError("planned")


def test_launches_run_in_their_order_as_often_as_they_are_pushed(engine, mix):
    x, y = ones(), cs.zeros(8, np.int32)
    there, back, other = prepared(mix, y, x), prepared(mix, x, y), prepared(mix, x, y, 5)
    a, b = np.ones(8, np.int32), np.zeros(8, np.int32)
    # The same batch is pushed repeatedly, mixed with batches that begin with the same launch.
    for second in [back, back, back, other, other, back, other]:
        op = engine.push_many([there, second, there])
        b = mixed(b, a)
        a = mixed(a, b, 2 if second is back else 5)
        b = mixed(b, a)
    assert op.result(PATIENCE_S) == [None, None, None]
    assert op.kind.value == "kernel"
    assert Path(__file__).name in op.push_site
    assert (x.numpy().tolist(), y.numpy().tolist()) == (a.tolist(), b.tolist())


def test_functions_of_a_stream_and_launches_take_turns(engine, mix):
    x, y, seen = ones(), cs.zeros(8, np.int32), []

    def clear(stream: cs.Stream) -> str:
        seen.append(stream)
        cs.memset_async(y, 0, stream=stream)
        return "cleared"

    step = prepared(mix, y, x)
    op = engine.push_many([step, (clear, (), [y], x.device), step])
    assert op.result(PATIENCE_S) == [None, "cleared", None]
    assert y.numpy().tolist() == mixed(np.zeros(8), np.ones(8)).tolist()
    assert isinstance(seen[0], cs.Stream)


def test_a_batch_is_ordered_with_everything_else(engine, mix):
    """The other work is on other streams, in host ops, on views, and on changed ranges."""
    x, y = ones(), cs.zeros(8, np.int32)
    a, b = np.ones(8, np.int32), np.zeros(8, np.int32)
    steps = [prepared(mix, y, x), prepared(mix, x, y)]
    for turn in range(20):
        engine.push_many(steps)
        b = mixed(b, a)
        a = mixed(a, b)
        if turn % 3 == 1:
            cs.copy(x[2:6], np.full(4, turn, np.int32))
            a[2:6] = turn
        if turn % 5 == 2:
            mix[1, 4](y[4:], x[:4], np.int32(1), np.uint32(4))
            b[4:] = 31 * b[4:] + a[:4] + np.arange(4)
        if turn % 7 == 3:
            engine.push(lambda: None, reads=[x], writes=[y]).wait(PATIENCE_S)
    assert (x.numpy().tolist(), y.numpy().tolist()) == (a.tolist(), b.tolist())


def test_a_step_that_fails_is_named_and_poisons_what_the_batch_writes(engine, mix):
    x, y, z = ones(), cs.zeros(8, np.int32), cs.zeros(8, np.int32)
    steps = [prepared(mix, y, x), (fail, (), [z], 0), prepared(mix, x, y)]
    op = engine.push_many(steps, name="frame")
    error = op.exception(PATIENCE_S)
    assert error.op == "frame, step 1 (fail)"
    assert error.push_site == op.push_site
    for each in (x, y, z):
        with pytest.raises(cs.OpError, match=r"frame, step 1 \(fail\)"):
            each.numpy()
    engine.clear_errors()
    # The work enqueued before the failing step has run, and nothing behind it.
    assert y.numpy().tolist() == mixed(np.zeros(8), np.ones(8)).tolist()
    assert x.numpy().tolist() == [1] * 8


@pytest.mark.parametrize("is_known", [False, True])
def test_a_launch_that_can_not_be_enqueued_is_named(engine, mix, is_known):
    other = cs.Module.from_file(KERNELS)
    x, y = ones(), cs.zeros(8, np.int32)
    steps = [prepared(mix, y, x), prepared(other.kernel("mix"), x, y)]
    if is_known:
        engine.push_many(steps).wait(PATIENCE_S)
    # This closes the module without its kernels' knowledge. They would refuse otherwise.
    driver.Module.close(other)
    error = engine.push_many(steps).exception(PATIENCE_S)
    assert error.op == "batch of 2, step 1 (mix)"
    assert isinstance(error.cause, cs.ClosedError)
    engine.clear_errors()


@pytest.mark.loses_device
def test_a_kernel_that_faults_is_named_with_its_step(engine, mix):
    x, y = ones(), cs.zeros(8, np.int32)
    wild = cs.Module.from_ptx(WILD).kernel("wild").prepare(grid=1, block=1, args=(y,))
    engine.push_many([prepared(mix, y, x), wild], name="frame")
    with pytest.raises(cs.OpError) as caught:
        y.numpy()
    assert caught.value.op == "frame, step 1 (wild)"
    with pytest.raises(cs.OpError):
        engine.waitall(PATIENCE_S)
    engine.clear_errors()
    x.device.reset()


def test_ctrl_c_in_a_step_reaches_the_pusher_and_fails_the_batch(mix):
    def interrupted(_stream: cs.Stream) -> None:
        raise KeyboardInterrupt

    with cs.Engine() as engine:
        x, y = ones(), cs.zeros(8, np.int32)
        with pytest.raises(KeyboardInterrupt):
            engine.push_many([prepared(mix, y, x), (interrupted, (), [x], 0)], name="frame")
        with pytest.raises(cs.OpError) as caught:
            x.wait(PATIENCE_S)
        assert caught.value.op == "frame, step 1 (interrupted)"
        engine.clear_errors()
        assert y.numpy().tolist() == mixed(np.zeros(8), np.ones(8)).tolist()


def test_what_a_step_overwrites_is_not_read_from_outside_by_later_steps(engine, mix):
    x, y = ones(), cs.zeros(8, np.int32)
    engine.push(fail, writes=[y])
    narrowed = prepared(mix, cs.Out(y), x), prepared(mix, x, y)
    engine.push_many(narrowed).wait(PATIENCE_S)
    engine.push(fail, writes=[y])
    assert engine.push_many(narrowed[::-1]).exception(PATIENCE_S).op == "fail"
    engine.clear_errors()


def test_a_batch_waits_for_a_host_op_with_its_arrays_alive(mix):
    with cs.Engine() as engine:
        x, y = ones(), cs.zeros(8, np.int32)
        gate = threading.Event()
        engine.push(lambda: gate.wait(PATIENCE_S), writes=[x])
        steps = [prepared(mix, y, x), prepared(mix, y, x)]
        op = engine.push_many(steps)
        del steps, x
        others = [cs.array(np.full(8, 9, np.int32)) for _ in range(4)]
        gc.collect()
        assert not op.done()
        gate.set()
        once = mixed(np.zeros(8), np.ones(8))
        assert y.numpy().tolist() == mixed(once, np.ones(8)).tolist()
        del others


def test_a_launch_that_began_a_batch_keeps_nothing_of_the_others(mix):
    with cs.Engine() as engine:
        x, y = ones(), cs.zeros(8, np.int32)
        first, second = prepared(mix, x, x), prepared(mix, y, x)
        for _ in range(3):
            engine.push_many([first, second, first]).wait(PATIENCE_S)
        gone = weakref.ref(y._allocation)
        enabled = gc.isenabled()
        gc.disable()
        try:
            del second, y
            assert gone() is None, "not even until the garbage collector comes"
        finally:
            if enabled:
                gc.enable()


def test_a_batch_costs_one_event_and_a_call_for_each_launch(mix):
    with cs.Engine() as engine:
        x, y = ones(), cs.zeros(8, np.int32)
        steps = [prepared(mix, y, x), prepared(mix, x, y)] * 4
        for _ in range(3):
            engine.push_many(steps).wait(PATIENCE_S)
        gc.collect()
        reap()
        engine.waitall(PATIENCE_S)
        with counted_calls() as calls:
            engine.push_many(steps)
        assert calls["cuLaunchKernel"] == 8
        assert calls["cuEventRecord"] == 1
        assert calls["cuStreamWaitEvent"] == 0


def test_a_batch_is_one_op_for_statistics_and_trace(mix):
    with cs.Engine(trace=True) as engine:
        x, y = ones(), cs.zeros(8, np.int32)
        engine.waitall(PATIENCE_S)
        before = engine.statistics()
        engine.push_many([prepared(mix, y, x)] * 3, name="three").wait(PATIENCE_S)
        after = engine.statistics()
        assert after.device_ops == before.device_ops + 1
        assert (after.batches, after.steps) == (1, 3)
        (entry,) = [each for each in engine.trace() if each.name == "three"]
        assert entry.kind == "kernel"


def test_accesses_of_a_batch_have_the_reasons_of_its_steps(engine, mix):
    x, y = ones(), cs.zeros(8, np.int32)
    op = engine.push_many([prepared(mix, cs.Out(y), x), (fail, [y], [x], 0)])
    op.exception(PATIENCE_S)
    told = {row.what: row for row in op.accesses}
    assert (told[x.region].reads, told[x.region].writes) == (True, True)
    assert (told[y.region].reads, told[y.region].writes) == (False, True)
    assert "step 0 (mix): parameter `target`: declared Out" in told[y.region].reason
    assert "step 1 (fail): named at the push" in told[y.region].reason
    engine.clear_errors()


def test_a_batch_runs_in_one_place(engine, mix):
    x, y = ones(), cs.zeros(8, np.int32)
    step = prepared(mix, y, x)
    bare = driver.Module.from_file(KERNELS).kernel("mix")
    buffer = cs.DeviceBuffer(32)
    by_hand = bare.prepare(grid=1, block=8, args=(buffer, buffer, np.int32(1), np.uint32(8)))
    with pytest.raises(ValueError, match=r"step 0 is a launch on .* and step 1 a function on the"):
        engine.push_many([step, (fail, (), ())])
    with pytest.raises(ValueError, match="pool= is for host functions"):
        engine.push_many([step], pool="compute")
    with pytest.raises(TypeError, match="step 1: a launch of the driver layer"):
        engine.push_many([step, by_hand])
    last = cs.Device(cs.device_count() - 1)
    if last.ordinal:
        with pytest.raises(ValueError, match="is one op in one place"):
            engine.push_many([step, (fail, (), (), last)])


def test_a_kernel_that_may_reach_all_memory_says_what_it_touches(engine):
    x = ones()
    table = cs.array(np.array([x.ptr], np.int64))
    follow = cs.Module.from_ptx(WILD).kernel("follow").prepare(grid=1, block=1, args=(table,))
    with pytest.raises(ValueError, match=r"step 0: kernel follow may reach all .*touching"):
        engine.push_many([follow])
    op = engine.push_many([follow.touching(writes=[x])] * 2)
    op.wait(PATIENCE_S)
    assert x.numpy().tolist() == [1] * 8


def test_a_batch_with_a_priority_takes_a_stream_of_such(mix):
    with cs.Engine(trace=True) as engine:
        x, y = ones(), cs.zeros(8, np.int32)
        engine.push_many([prepared(mix, y, x)] * 2, name="urgent", priority=1).wait(PATIENCE_S)
        (entry,) = [each for each in engine.trace() if each.name == "urgent"]
        assert "priority 1" in entry.timeline
        assert y.numpy().tolist() == mixed(mixed(np.zeros(8), np.ones(8)), np.ones(8)).tolist()


def test_a_device_function_may_push(engine, mix):
    x, y = ones(), cs.zeros(8, np.int32)
    inner = prepared(mix, y, x)

    def outer(_stream: cs.Stream) -> cs.Op:
        return cs.engine().push_many([inner])

    op = engine.push_many([prepared(mix, y, x), (outer, (), [cs.Var()], 0)])
    op.result(PATIENCE_S)[1].wait(PATIENCE_S)
    assert y.numpy().tolist() == mixed(mixed(np.zeros(8), np.ones(8)), np.ones(8)).tolist()


def test_threads_that_push_one_batch_at_once_lose_none(mix):
    with cs.Engine() as engine:
        x, y = cs.zeros(8, np.int32), cs.zeros(8, np.int32)
        steps = [prepared(mix, y, x, 0)] * 3
        start = threading.Barrier(4)

        def push() -> None:
            start.wait(PATIENCE_S)
            for _ in range(25):
                engine.push_many(steps)

        threads = [threading.Thread(target=push) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        expected = np.zeros(8, np.int32)
        for _ in range(300):
            expected = mixed(expected, np.zeros(8, np.int32), 0)
        assert y.numpy().tolist() == expected.tolist()
        assert engine.statistics().steps == 300


def test_a_batch_that_was_pushed_before_a_reset_is_refused_behind_it(engine, mix):
    x, y = ones(), cs.zeros(8, np.int32)
    steps = [prepared(mix, y, x)] * 2
    engine.push_many(steps).wait(PATIENCE_S)
    x.device.reset()
    # Either the push raises, or the op of a batch that needs no new look-up.
    with pytest.raises((cs.ClosedError, cs.OpError)) as caught:
        engine.push_many(steps).wait(PATIENCE_S)
    assert isinstance(getattr(caught.value, "cause", caught.value), cs.ClosedError)
    engine.clear_errors()
