"""Loops of launches that are replayed: what their callers see, and what the driver gets."""

from __future__ import annotations

import asyncio
import gc
import operator
import threading
import weakref

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer, end_tracing, is_library
from helpers.concurrency.interrupt_ground import KERNELS
from helpers.driver.call_counts import counted_calls
from helpers.engine_programs.repeated_launches import LIMIT, Loop
from helpers.repository.subprocesses import assert_runs_clean

import cudasync as cs
from cudasync.array.kernels import kernel as kernels
from cudasync.engine.replay.run import JoinedLaunch
from cudasync.engine.replay.sequence import UNIT
from cudasync.engine.replay.tape import LOCAL

# In the library, for four arguments, on Python 3.11. A launch that is pushed has 870.
MOST_MATCHED = 125

pytestmark = pytest.mark.usefixtures("no_launch_is_too_slow")


def test_a_launch_of_a_run_is_an_op_of_its_own(loop):
    first, second, _ = [loop() for _ in range(3)]
    assert isinstance(second, JoinedLaunch)
    assert isinstance(second, cs.Op)
    assert first is not second
    assert second.name == "mix"
    assert second.kind.value == "kernel"
    assert second.push_site.startswith(f"{Loop.__call__.__code__.co_filename}:")
    said = {each.what: (each.reads, each.writes) for each in second.accesses}
    assert said == {loop.x.region: (True, True), loop.y.region: (True, False)}
    assert "mix" in repr(second)
    assert second.result(PATIENCE_S) is None
    assert first.done()
    assert second.exception() is None
    loop.check()


def test_each_launch_names_its_own_line(mix, engine):
    x, y = cs.zeros(8, np.int32), cs.zeros(8, np.int32)
    for _ in range(LIMIT):
        first = mix[1, 8](x, y, 2, 8)
        second = mix[1, 8](x, y, 2, 8)
    assert isinstance(first, JoinedLaunch)
    assert isinstance(second, JoinedLaunch)
    lines = [int(each.push_site.rpartition(":")[2]) for each in (first, second)]
    assert lines[1] == lines[0] + 1
    assert "replays 2 launches" in engine.replay_report()


def test_whatever_asks_for_one_launch_issues_the_run(loop, engine):
    called = threading.Event()
    loop().add_done_callback(called.set)
    assert not called.is_set()
    loop().wait(PATIENCE_S)
    assert called.wait(PATIENCE_S)

    async def wait():
        return await loop()

    assert asyncio.run(wait()) is None
    op = loop()
    while not op.done():
        pass
    loop()
    cs.Device(0).synchronize()
    assert engine.statistics().device_ops
    loop.check()


def test_nobody_has_to_wait(loop):
    ended = threading.Event()
    loop().add_done_callback(ended.set)
    assert ended.wait(PATIENCE_S)


def test_a_whole_run_is_one_launch_of_the_driver_and_one_event(loop, engine):
    for _ in range(UNIT):
        loop()
    engine.waitall(PATIENCE_S)
    with counted_calls() as calls:
        for _ in range(UNIT):
            loop()
    made = [calls[name] for name in ("cuGraphLaunch", "cuLaunchKernel", "cuEventRecord")]
    assert made == [1, 0, 1]
    loop.check()


def test_rounds_between_waits_become_graphs_of_their_own(loop, engine):
    for _ in range(6):
        for _ in range(5):
            loop()
        engine.waitall(PATIENCE_S)
    with counted_calls() as calls:
        for _ in range(5):
            loop()
        engine.waitall(PATIENCE_S)
    made = [calls[name] for name in ("cuGraphLaunch", "cuLaunchKernel", "cuEventRecord")]
    assert made == [1, 0, 1]
    loop.check()


def test_a_matched_launch_costs_few_bytecodes(mix, engine):
    x, y = cs.zeros(8, np.int32), cs.zeros(8, np.int32)
    costs = []
    for _ in range(LIMIT):
        joins = LOCAL.tape.length >= 0 and LOCAL.tape.step.following is not None
        freezer = Freezer(None, is_library)
        try:
            with freezer:
                op = mix[1, 8](x, y, 2, 8)
        finally:
            end_tracing()
        if joins and isinstance(op, JoinedLaunch):
            costs.append(freezer.points)
    assert len(costs) > UNIT
    assert sorted(costs)[len(costs) // 2] <= MOST_MATCHED
    engine.waitall(PATIENCE_S)


def test_other_numbers_and_other_memory_are_pushed(loop, mix):
    for factor in (2, 2, 3, 2, 2.0):
        if isinstance(factor, float):
            with pytest.raises((TypeError, ValueError)):
                mix[1, 8](loop.x, loop.y, factor, 8)
            continue
        op = loop(factor)
        assert isinstance(op, JoinedLaunch) is (factor == 2)
    other = Loop(mix)
    assert not isinstance(other(), JoinedLaunch)
    other.check()
    loop.check()


def test_zeros_of_both_signs_are_other_numbers(engine):
    sign = cs.Module.from_ptx(SIGN).kernel("sign")
    x = cs.zeros(1, np.float32)
    plus, minus = 0.0, -0.0
    for i in range(LIMIT):
        op = sign[1, 1](x, minus if i == LIMIT - 1 else plus)
        if i == LIMIT - 2:
            assert isinstance(op, JoinedLaunch)
            assert not np.signbit(x.numpy()[0])
    assert np.signbit(x.numpy()[0])


SIGN = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry sign(.param .u64 to, .param .f32 by) {
  .reg .b64 %d<2>; .reg .f32 %f<2>;
  ld.param.u64 %d0, [to]; ld.param.f32 %f0, [by];
  st.global.f32 [%d0], %f0; ret;
}
"""


def test_a_closed_module_refuses_the_launches_that_were_expected(loop, module):
    loop()
    module.close()
    with pytest.raises(cs.ClosedError):
        loop.mix[1, 8](loop.x, loop.y, 2, 8)
    loop.check()


def test_a_closed_module_was_launched_for_other_threads(mix, module, engine):
    """The launches of a thread that has ended, in a run that is still open."""
    made = []

    def work():
        with cs.use(engine):
            loop = Loop(mix).until_replayed(engine)
            made.extend([loop, [loop() for _ in range(3)]])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE_S)
    module.close()
    loop, ops = made
    assert all(isinstance(each, JoinedLaunch) for each in ops)
    loop.check()


@pytest.mark.loses_device
@pytest.mark.parametrize("count", [2, UNIT])
def test_a_fault_in_a_run_names_the_kernel(engine, count):
    """A run that is launched call by call, and one that is a graph."""
    store = cs.Module.from_ptx(STORE).kernel("store")
    x, place = cs.zeros(8, np.int32), cs.zeros(1, np.uint32)

    def launch():
        return store[1, 1](x, place)

    for _ in range(LIMIT):
        op = launch()
        if "replays" in engine.replay_report():
            break
    engine.waitall(PATIENCE_S)
    cs.copy(place, np.array([(1 << 32) - 8], np.uint32)).wait()
    for _ in range(count):
        op = launch()
    try:
        assert isinstance(op, JoinedLaunch), engine.replay_report()
        error = op.exception(PATIENCE_S)
        assert f"replay of {count}" in error.op
        assert "store" in error.op
    finally:
        cs.Device(0).reset()
        engine.clear_errors()


STORE = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry store(.param .u64 to, .param .u64 place) {
  .reg .b64 %d<4>; .reg .b32 %r<2>;
  ld.param.u64 %d0, [to]; ld.param.u64 %d1, [place];
  ld.global.u32 %r1, [%d1]; mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d0, %d2; mov.u32 %r0, 1;
  st.global.u32 [%d3], %r0; ret;
}
"""


def test_a_closed_engine_is_not_launched_on(mix):
    LOCAL.tape.forget()
    with cs.Engine(replay=True) as engine:
        loop = Loop(mix).until_replayed(engine)
        loop()
    with cs.Engine(replay=True):
        loop()
        loop.check()


def test_the_engine_of_the_call_counts(loop):
    with cs.Engine() as other:
        op = loop()
        assert not isinstance(op, JoinedLaunch)
        op.wait(PATIENCE_S)
        assert other.statistics().device_ops
    assert isinstance(loop(), JoinedLaunch)
    loop.check()


def test_a_sequence_keeps_no_array(loop, engine):
    allocation = weakref.ref(loop.x._allocation)
    loop()
    loop.x = loop.y
    gc.collect()
    assert allocation() is None
    engine.waitall(PATIENCE_S)


def test_another_array_on_the_same_memory_joins(loop):
    whole = loop.x
    joined = []
    for _ in range(UNIT):
        loop.x = whole[:]
        joined.append(isinstance(loop(), JoinedLaunch))
    assert all(joined)
    loop.check()


def test_a_sequence_that_keeps_arrays_is_found(mix, engine, monkeypatch):
    """The planted bug: a launch must have the same arrays, not the same memory."""
    usual = kernels.BoundKernel.call_of

    def by_arrays(self, kernel, args, accesses, frame, *, changes):
        call = usual(self, kernel, args, accesses, frame, changes=changes)
        return call._replace(takes=lambda given: all(map(operator.is_, given[:2], args[:2])))

    monkeypatch.setattr(kernels.BoundKernel, "call_of", by_arrays)
    loop = Loop(mix).until_replayed(engine)
    allocation = weakref.ref(loop.x._allocation)
    whole = loop.x
    loop()
    loop.x = whole[:]
    assert not isinstance(loop(), JoinedLaunch)
    loop.check()
    loop.x = loop.y
    del whole
    gc.collect()
    assert allocation() is not None
    LOCAL.tape.forget()


def test_launches_in_ops_and_recordings_are_not_matched(loop, engine):
    seen = []
    engine.push(lambda: seen.append(loop())).wait(PATIENCE_S)
    assert not isinstance(seen[0], JoinedLaunch)
    with cs.graph() as g:
        loop.mix[1, 8](loop.x, loop.y, 2, 8)
    assert len(g.nodes) == 1
    loop.check()


def test_profiled_and_traced_launches_are_pushed(loop, mix):
    with cs.profile():
        assert not any(isinstance(loop(), JoinedLaunch) for _ in range(3))
    assert isinstance(loop(), JoinedLaunch)
    loop.check()
    with cs.Engine(replay=True, trace=True) as traced:
        other = Loop(mix)
        for _ in range(LIMIT):
            other()
        assert sum(each.name == "mix" for each in traced.trace()) == LIMIT


def test_every_thread_has_sequences_of_its_own(mix, engine):
    loops = []

    def work():
        with cs.use(engine):
            loop = Loop(mix)
            for _ in range(LIMIT):
                loop()
            loops.append(loop)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE_S)
    assert len(loops) == 3
    for each in loops:
        each.check()


def test_poison_reaches_only_what_needs_the_failed_data(mix, engine):
    good, bad = Loop(mix), Loop(mix)
    for _ in range(LIMIT):
        good(), bad()
    engine.waitall(PATIENCE_S)
    assert "replays" in engine.replay_report()
    engine.push(lambda: 1 / 0, writes=[bad.x], name="fails")
    ops = [(good(), bad()) for _ in range(3 * UNIT)]
    good.check()
    for fine, poisoned in ops[-UNIT:]:
        assert fine.exception(PATIENCE_S) is None
        assert poisoned.exception(PATIENCE_S).op == "fails"
    with pytest.raises(cs.OpError, match="fails"):
        bad.x.numpy()
    engine.clear_errors()


@pytest.mark.parametrize(
    ("vary", "says"),
    [
        (lambda i, x, y: (x[i % 7 :], y, 2), "other memory"),
        # Numbers of one class may change.
        (lambda i, x, y: (x, y, i if i % 3 else np.int32(i)), "a number was"),
    ],
)
def test_the_report_names_the_first_difference(mix, engine, vary, says):
    x, y = cs.zeros(64, np.int32), cs.zeros(64, np.int32)
    rng = np.random.default_rng(1)
    for _ in range(2 * LIMIT):
        a, b, factor = vary(int(rng.integers(1 << 16)), x, y)
        mix[1, 8](a, b, factor, 8)
    report = engine.replay_report()
    assert says in report
    assert f"{__file__}:" in report


def test_memory_is_flat_over_many_runs(loop, engine):
    def held():
        gc.collect()
        return sum(isinstance(each, cs.Op) for each in gc.get_objects())

    counts = []
    for _ in range(2):
        for _ in range(200 * UNIT):
            loop()
        engine.waitall(PATIENCE_S)
        counts.append(held())
    # The ops since the wait before are kept, and no others.
    assert counts[1] - counts[0] < UNIT
    loop.check()


def test_replay_is_off_unless_it_is_asked_for(mix, monkeypatch):
    monkeypatch.delenv("CUDASYNC_REPLAY", raising=False)
    with cs.Engine() as engine:
        loop = Loop(mix)
        for _ in range(LIMIT):
            assert not isinstance(loop(), JoinedLaunch)
        assert "CUDASYNC_REPLAY=1" in engine.replay_report()
        loop.check()


def test_an_engine_that_replays_finds_loops_behind_one_that_does_not(mix):
    LOCAL.tape.forget()
    with cs.Engine():
        loop = Loop(mix)
        for _ in range(5 * LIMIT):
            loop()
    with cs.Engine(replay=True) as engine:
        loop.until_replayed(engine)
        assert isinstance(loop(), JoinedLaunch)
        loop.check()
        assert engine.statistics().matched > 0


def test_the_counts_of_runs(loop, engine):
    before = engine.statistics()
    for _ in range(2 * UNIT):
        loop()
    after = engine.statistics()
    assert after.matched - before.matched == 2 * UNIT
    assert after.runs - before.runs == after.graphs - before.graphs == 2


def test_the_counts_of_misses(loop, engine):
    def misses():
        said = engine.statistics()
        return said.missed_launches, said.missed_memory, said.missed_numbers

    before = misses()
    loop()
    assert misses() == before
    loop(factor=5)
    assert misses() == (before[0], before[1], before[2] + 1)
    whole = loop.x
    loop.x, loop.wanted = cs.zeros(8, np.int32), np.zeros(8, np.int32)
    loop()
    assert misses() == (before[0], before[1] + 1, before[2] + 1)
    loop.mix[1, 8](whole, loop.y, 2, 8)
    assert misses() == (before[0] + 1, before[1] + 1, before[2] + 1)
    engine.waitall(PATIENCE_S)
    loop.check()


def test_a_forked_child_begins_anew():
    assert_runs_clean(
        f"""
        import os
        import numpy as np
        mix = cs.Module.from_file({str(KERNELS)!r}).kernel("mix")
        with cs.Engine(replay=True) as engine:
            x, y = cs.zeros(8, np.int32), cs.zeros(8, np.int32)
            ops = [mix[1, 8](x, y, 2, 8) for _ in range(200)]
            child = os.fork()
            if not child:
                os._exit(0 if isinstance(ops[-1].exception(5), cs.OpError) or ops[-1].done() else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            ops[-1].wait()
        """
    )
