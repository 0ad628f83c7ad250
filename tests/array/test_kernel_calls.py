"""Kernels called on arrays: accesses inferred, narrowed by hand, checked before the push."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cudasync as cs

KERNELS = Path(__file__).parent.parent / "helpers" / "kernels.ptx"

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


def test_reading_does_not_order_launches_and_writing_does(engine, module):
    x, y, z = (cs.zeros(8, np.int32) for _ in range(3))
    engine.waitall()
    mix = module.kernel("mix")
    waits = engine.statistics().waits
    mix[1, 8](y, x, np.int32(1), np.uint32(8))
    mix[1, 8](z, x, np.int32(1), np.uint32(8))
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
