"""Kernels called on arrays: accesses inferred, narrowed by hand, checked before the push."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import cudasync as cs
from cudasync.testing import Latch

KERNELS = Path(__file__).parents[2] / "helpers" / "kernels.ptx"

COUNTER = """
.version 6.4
.target sm_75
.address_size 64
.global .u32 counter = 5;
.visible .entry bump()
{
    .reg .b32 %r_count;
    ld.global.u32 %r_count, [counter];
    mad.lo.u32 %r_count, %r_count, 3, 1;
    st.global.u32 [counter], %r_count;
    ret;
}
.visible .entry look(.param .u64 target)
{
    .reg .b32 %r_count;
    .reg .b64 %rd_target;
    ld.param.u64 %rd_target, [target];
    ld.global.u32 %r_count, [counter];
    st.global.u32 [%rd_target], %r_count;
    ret;
}
"""


@pytest.fixture
def engine():
    with cs.Engine() as engine:
        yield engine


@pytest.fixture
def latch(engine):
    # The latch is released before the engine closes.
    with Latch(cs.Device(0)) as latch:
        yield latch


@pytest.fixture
def module():
    return cs.Module.from_file(KERNELS)


def fail() -> None:
    raise ValueError("planned")


def test_a_launch_reads_and_writes_what_the_ptx_says(engine, module):
    x, y = cs.array(np.arange(8, dtype=np.int32)), cs.zeros(8, np.int32)
    op = module.kernel("mix")[(1,), (32,)](y, x, np.int32(2), np.uint32(8))
    assert isinstance(op, cs.Op)
    assert op.name == "mix"
    assert y.numpy().tolist() == [3 * i for i in range(8)]


def test_reading_does_not_order_launches_and_writing_does(engine, module, latch):
    x, y, *held = (cs.zeros(8, np.int32) for _ in range(4))
    engine.waitall()
    mix = module.kernel("mix")
    waits = engine.statistics().waits
    # Both readers are held up, so the writer finds them unfinished.
    for each in held:
        engine.push(latch.hold, device=cs.Device(0), writes=[each])
        mix[1, 8](each, x, np.int32(1), np.uint32(8))
    assert engine.statistics().waits == waits
    mix[1, 8](x, y, np.int32(1), np.uint32(8))
    assert engine.statistics().waits == waits + 1


def test_an_inferred_write_keeps_poison_and_out_heals_it(engine, module):
    set_ = module.kernel("set")
    x, y = cs.zeros(8, np.int32), cs.zeros(8, np.int32)
    engine.push(fail, writes=[x, y])
    set_[1, 8](x, np.int32(1), np.uint32(8))
    set_[1, 8](cs.Out(y), np.int32(1), np.uint32(8))
    assert y.numpy().tolist() == list(range(1, 9))
    with pytest.raises(cs.OpError):
        x.numpy()
    engine.clear_errors()


def test_narrowing_to_a_read_lets_launches_run_together(engine, module):
    x = cs.zeros(8, np.int32)
    engine.waitall()
    waits = engine.statistics().waits
    for _ in range(2):
        module.kernel("mix")[1, 1](cs.In(x), cs.In(x), np.int32(1), np.uint32(0))
    assert engine.statistics().waits == waits


def test_launches_that_share_a_variable_of_the_module_are_ordered(engine):
    module = cs.Module.from_ptx(COUNTER)
    bump, look = module.kernel("bump"), module.kernel("look")
    values = cs.zeros(6, np.uint32)
    for i in range(6):
        look[1, 1](values[i : i + 1])
        bump[1, 1]()
    expected = [5]
    for _ in range(5):
        expected.append(3 * expected[-1] + 1)
    assert values.numpy().tolist() == expected


def test_values_count_as_of_the_call(engine, module):
    factor = np.array([2], np.int32)
    gate_open = cs.Var()
    x = cs.zeros(4, np.int32)
    engine.push(lambda: None, writes=[gate_open])
    module.kernel("set")[1, 4](x, factor[0], np.uint32(4))
    factor[0] = 100
    assert x.numpy().tolist() == [2, 3, 4, 5]


def test_each_of_many_launches_that_wait_keeps_the_values_of_its_call(engine, module):
    gate, rows = threading.Event(), cs.zeros((20, 4), np.int32)
    engine.push(lambda: gate.wait(20.0), reads=[rows], writes=[rows])
    set_ = module.kernel("set")
    ops = [set_[1, 4](rows[i], np.int32(10 * i), np.uint32(4)) for i in range(20)]
    # New values may use the memory of scalars that were issued by now. These launches wait.
    free = cs.zeros(4, np.int32)
    for i in range(5):
        set_[1, 4](free, np.int32(1000 + i), np.uint32(4))
    assert not any(op.done() for op in ops)
    gate.set()
    assert rows.numpy().tolist() == [[10 * i + j for j in range(4)] for i in range(20)]
    assert free.numpy().tolist() == [1004 + j for j in range(4)]


def test_threads_that_call_one_kernel_at_once_each_launch_with_their_own_arguments(engine, module):
    set_, threads, rounds = module.kernel("set")[1, 4], 4, 150
    rows = cs.zeros((threads, rounds, 4), np.int32)
    start = threading.Barrier(threads)

    def work(number):
        start.wait()
        for i in range(rounds):
            value = 1000 * number + i
            # Both packers are in use at once, so each thread finds the other thread's packer as the
            # latest.
            set_(rows[number, i], value if i % 2 else np.int32(value), np.uint32(4))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(threads) as pool:
            assert list(pool.map(work, range(threads))) == [None] * threads
    finally:
        sys.setswitchinterval(interval)
    values = 1000 * np.arange(threads)[:, None] + np.arange(rounds)
    assert np.array_equal(rows.numpy(), values[:, :, None] + np.arange(4))


def test_a_launch_keeps_its_arguments_until_it_is_issued(engine, module):
    gate, target = threading.Event(), cs.zeros(4, np.int32)
    engine.push(lambda: gate.wait(20.0), reads=[target], writes=[target])
    source = cs.array(np.arange(4, dtype=np.int32))
    module.kernel("mix")[1, 4](target, source, np.int32(1), np.uint32(4))
    del source
    others = [cs.array(np.full(4, 99, np.int32)) for _ in range(4)]
    gate.set()
    assert target.numpy().tolist() == [0, 2, 4, 6]
    assert others[0].numpy().tolist() == [99] * 4


def test_arguments_may_change_their_types_from_call_to_call(engine, module):
    set_, x = module.kernel("set")[1, 4], cs.zeros(4, np.int32)
    engine.waitall()
    for value in (1, np.int32(2), -3, np.uint32(1 << 31), True, np.int32(-5)):
        for target in (x, cs.Out(x), cs.InOut(x)):
            set_(target, value, np.uint32(4))
            expected = [int(np.int64(value) + i) for i in range(4)]
            assert x.numpy().tolist() == np.array(expected, np.int64).astype(np.int32).tolist()


def test_narrowing_counts_for_the_call_it_is_made_in(engine, module, latch):
    x = cs.zeros(8, np.int32)
    engine.waitall()
    mix = module.kernel("mix")[1, 1]
    arguments = (np.int32(1), np.uint32(0))
    # No op is over before all are pushed, because a finished op need not be waited for.
    engine.push(lambda stream: latch.hold(stream), writes=[x], device=latch.device)
    mix(x, x, *arguments)
    before = engine.statistics().waits
    for _ in range(3):
        mix(cs.In(x), cs.In(x), *arguments)
    between = engine.statistics().waits
    mix(x, cs.In(x), *arguments)
    after = engine.statistics().waits
    latch.release()
    assert between - before <= 2
    assert after > between


def test_a_shape_may_be_given_in_any_form_and_is_looked_up_when_it_is_known(engine, module):
    set_, x = module.kernel("set"), cs.zeros(4, np.int32)
    forms = [(1, 4), ((1,), (4,)), ([1], [4]), (np.int64(1), 4), ((1, 1, 1), (4, 1), 0)]
    for i, form in enumerate(forms):
        set_[form](x, np.int32(i), np.uint32(4))
        assert x.numpy().tolist() == [i, i + 1, i + 2, i + 3]
    assert set_[1, 4] is set_[1, 4]
    for threads in range(1, 600):
        set_[1, threads](x, np.int32(7), np.uint32(4))
    assert x.numpy().tolist() == [7, 8, 9, 10]


@pytest.mark.parametrize(
    ("grid", "block", "args", "error", "words"),
    [
        (1, 32, (), TypeError, "4"),
        (1, 32, (1, 2, 3, 4, 5), TypeError, "4"),
        (1, 32, ("a", "a", np.int32(1), np.uint32(8)), TypeError, "target"),
        (1, 32, ("x", "x", np.float32(1), np.uint32(8)), TypeError, "factor"),
        (1, 32, ("x", "x", 1, 1 << 40), ValueError, "n"),
        (0, 32, ("x", "x", 1, 8), ValueError, "grid"),
        (1, 1025, ("x", "x", 1, 8), ValueError, "1024"),
        (1, (64, 64, 1), ("x", "x", 1, 8), ValueError, "1024"),
    ],
)
def test_wrong_launches_are_refused_before_anything_is_pushed(
    engine, module, grid, block, args, error, words
):
    x = cs.zeros(8, np.int32)
    real = [x if isinstance(a, str) and a == "x" else a for a in args]
    before = engine.statistics().ops
    with pytest.raises(error, match=words):
        module.kernel("mix")[grid, block](*real)
    assert engine.statistics().ops == before


def test_too_much_shared_memory_is_refused(engine, module):
    with pytest.raises(ValueError, match="shared"):
        module.kernel("mix")[1, 32, 1 << 30](0, 0, 1, 8)


def test_a_kernel_needs_a_grid_and_a_block(module):
    with pytest.raises(TypeError, match=r"kernel\[grid, block\]"):
        module.kernel("mix")[1]


def test_a_kernel_that_is_not_there_is_refused_with_those_that_are(module):
    with pytest.raises(ValueError, match="mix"):
        module.kernel("nothing")
