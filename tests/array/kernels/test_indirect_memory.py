"""Memory that a launch reaches without an array argument: looked up, or ordered with all memory."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.arrays.pointer_reach import TEXT, VIEW, view
from helpers.ptx_generators.kernel_frame import kernel

import cudasync as cs
from cudasync.array.kernels.prepared_launch import ReachingLaunch
from cudasync.engine.hazards.interval_map import Region
from cudasync.ptx.types import Access

PATIENCE_S = 20.0


@pytest.fixture
def engine():
    with cs.Engine() as engine:
        yield engine


@pytest.fixture
def module():
    return cs.Module.from_ptx(TEXT)


@pytest.fixture
def step(module):
    """step(to, add): to = 3 * to + add."""
    return module.kernel("step")


def cell(value=0):
    return cs.array(np.array([value], np.uint32))


def table_of(*addresses):
    return cs.array(np.array(addresses, np.uint64))


class Held:
    """Memory that a host op uses until the `with` block ends."""

    def __init__(self, engine, *things):
        self._gate = threading.Event()
        engine.push(lambda: self._gate.wait(PATIENCE_S), reads=things, writes=things)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._gate.set()


class Pointers(ctypes.Structure):
    _fields_ = [("to", ctypes.c_uint64), ("add", ctypes.c_uint32), ("from_", ctypes.c_uint64)]


INTEGERS = {
    "int": int,
    "numpy": np.uint64,
    "signed": np.int64,
    "CUdeviceptr": driver.CUdeviceptr,
    "c_void_p": ctypes.c_void_p,
}
STRUCTS = {
    "numpy": lambda to, add, of: view(to, add, of),
    "array": lambda to, add, of: np.array([(to, add, of)], VIEW),
    "bytes": lambda to, add, of: view(to, add, of).tobytes(),
    "ctypes": Pointers,
}


@pytest.mark.parametrize("kind", INTEGERS)
def test_an_address_in_an_integer_counts_as_the_array_there(engine, step, kind):
    x, other = cell(2), cell()
    with Held(engine, x):
        op = step[1, 1](INTEGERS[kind](x.ptr), np.uint32(1))
        step[1, 1](other, np.uint32(1)).wait(PATIENCE_S)
        assert not op.done()
    assert x.numpy()[0] == 7


@pytest.mark.parametrize("kind", STRUCTS)
def test_an_address_in_a_struct_counts_as_the_array_there(engine, module, kind):
    x, y, other = cell(2), cell(5), cell()
    for held in (x, y):
        with Held(engine, held):
            op = module.kernel("step_struct")[1, 1](STRUCTS[kind](x.ptr, 1, y.ptr))
            module.kernel("step")[1, 1](other, np.uint32(1)).wait(PATIENCE_S)
            assert not op.done()
    assert x.numpy()[0] == 3 * (3 * 2 + 6) + 6


def test_a_word_that_is_only_read_lets_others_read(engine, module):
    x, y, z = cell(), cell(), cell()
    run = module.kernel("step_struct")[1, 1]
    engine.waitall()
    waits = engine.statistics().waits
    run(view(x.ptr, 1, z.ptr))
    run(view(y.ptr, 1, z.ptr))
    assert engine.statistics().waits == waits


def test_an_address_inside_of_memory_counts_as_all_of_it(engine, step):
    buffer = cs.DeviceBuffer(1024)
    with Held(engine, buffer):
        op = step[1, 1](buffer.ptr + 512, np.uint32(1))
        assert not op.done()
    op.wait(PATIENCE_S)
    assert [each.what for each in op.accesses] == [Region(buffer.ptr, buffer.ptr + 1024)]


def test_an_address_of_pinned_memory_counts_as_that(engine, step):
    pinned = cs.pinned_empty((1,), np.uint32)
    pinned[0] = 4
    with Held(engine, pinned):
        op = step[1, 1](pinned.ctypes.data, np.uint32(1))
        assert not op.done()
    op.wait(PATIENCE_S)
    assert pinned[0] == 13


def test_numbers_order_nothing(engine):
    """Small numbers, such as a size or an offset that the kernel adds to an address."""
    text = kernel(
        "ld.param.u64 %d0, [to]; ld.param.u64 %d1, [place]; add.s64 %d2, %d0, %d1;"
        " st.global.u8 [%d2], 7; ret;",
        parameters=".param .u64 to, .param .u64 place",
    )
    put = cs.Module.from_ptx(text).kernel("k")
    assert put.parameters[1].access is Access.WRITE
    x, other = cs.zeros(8, np.uint8), cell()
    with Held(engine, other):
        put[1, 1](x, 3).wait(PATIENCE_S)
    assert x.numpy().tolist() == [0, 0, 0, 7, 0, 0, 0, 0]


def test_an_address_of_memory_that_is_not_ours_may_be_anything(engine, step):
    (code, theirs) = driver.cuMemAlloc(64)
    assert not code
    x = cell()
    with Held(engine, x):
        op = step[1, 1](int(theirs), np.uint32(1))
        assert not op.done()
    op.wait(PATIENCE_S)
    assert "not memory of cudasync: everything on device" in op.accesses[0].reason
    driver.cuMemFree(theirs)


def test_null_and_addresses_that_are_only_kept_order_nothing_more(engine, module):
    text = kernel(
        "ld.param.u64 %d0, [to]; ld.param.u64 %d1, [n]; st.global.u64 [%d0], %d1; ret;",
        parameters=".param .u64 to, .param .u64 n",
    )
    keep = cs.Module.from_ptx(text).kernel("k")
    x, other = cs.zeros(1, np.uint64), cell()
    with Held(engine, other):
        for number in (0, 2**63 + 5, 1 << 40):
            keep[1, 1](x, number).wait(PATIENCE_S)
    assert x.numpy()[0] == 1 << 40


def test_a_declared_use_narrows_an_address_too(engine, module):
    x, z = cell(), cell(3)
    run = module.kernel("step_struct")[1, 1]
    op = run(cs.In(view(x.ptr, 1, z.ptr)))
    assert not any(each.writes for each in op.accesses)
    op = module.kernel("step")[1, 1](cs.Out(x.ptr), np.uint32(1))
    assert [(each.reads, each.writes) for each in op.accesses] == [(True, True)]


def test_a_kernel_that_follows_pointers_comes_after_and_before_everything(engine, module):
    x, other = cell(2), cell()
    table = table_of(x.ptr)
    step, step_table = module.kernel("step")[1, 1], module.kernel("step_table")[1, 1]
    with Held(engine, other):
        op = step_table(table, np.uint32(1))
        later = step(x, np.uint32(5))
        assert not op.done()
        assert not later.done()
    assert x.numpy()[0] == 3 * 7 + 5


def test_memory_that_is_first_used_afterwards_comes_after_it(engine, module):
    """The engine has never seen the memory, whoever owns it."""
    (code, theirs) = driver.cuMemAlloc(64)
    assert not code
    held = cell()
    table = table_of(int(theirs))
    with Held(engine, held):
        module.kernel("step_table")[1, 1](table, np.uint32(1))
        region = Region(int(theirs), int(theirs) + 4)
        later = engine.push(lambda: None, reads=[region])
        assert not later.done()
    later.wait(PATIENCE_S)
    driver.cuMemFree(theirs)


def test_touching_says_what_it_follows_instead(engine, module):
    x, other = cell(2), cell()
    table = table_of(x.ptr)
    run = module.kernel("step_table")[1, 1].touching(reads=[x], writes=x)
    with Held(engine, other):
        run(table, np.uint32(1)).wait(PATIENCE_S)
    with Held(engine, x):
        op = run(table, np.uint32(2), name="again")
        assert not op.done()
    with Held(engine, table):
        assert not run(table, np.uint32(3)).done()
    assert x.numpy()[0] == 3 * (3 * 7 + 2) + 3
    assert op.name == "again"
    assert {each.reason for each in op.accesses[1:]} == {"named by touching"}


def test_a_prepared_launch_can_be_told_too(engine, module):
    x, other = cell(2), cell()
    table = table_of(x.ptr)
    launch = module.kernel("step_table").prepare(grid=1, block=1, args=(table, np.uint32(1)))
    told = launch.touching(reads=x, writes=[x])
    with Held(engine, other):
        told.push().wait(PATIENCE_S)
        op = launch.push()
        assert not op.done()
    op.wait(PATIENCE_S)
    assert x.numpy()[0] == 3 * 7 + 1


@pytest.mark.parametrize(
    ("names", "error"),
    [
        ({"reads": 3}, TypeError),
        ({"writes": ["x"]}, TypeError),
        ({"write": ()}, TypeError),
        ({"writes": [object()]}, TypeError),
    ],
)
def test_what_can_not_be_touched_is_refused_at_once(module, names, error):
    bound = module.kernel("step_table")[1, 1]
    with pytest.raises(error):
        bound.touching(**names)
    launch = module.kernel("step_table").prepare(grid=1, block=1, args=(table_of(0), np.uint32(1)))
    with pytest.raises(error):
        launch.touching(**names)


def test_what_a_touching_call_overwrites_is_healed(engine, module):
    def fail():
        raise ValueError("planned")

    x = cell(2)
    table = table_of(x.ptr)
    engine.push(fail, writes=[x])
    run = module.kernel("step_table")[1, 1]
    run.touching(writes=[x])(table, np.uint32(1))
    assert x.numpy()[0] == 7
    engine.push(fail, writes=[x])
    with pytest.raises(cs.OpError):
        run(table, np.uint32(1)).wait(PATIENCE_S)
    engine.clear_errors()


@pytest.mark.loses_device
def test_a_prepared_launch_looks_its_addresses_up_at_each_push(engine, step):
    buffer = cs.DeviceBuffer(64)
    launch = step.prepare(grid=1, block=1, args=(buffer.ptr, np.uint32(1)))
    region = Region(buffer.ptr, buffer.ptr + 64)
    assert [each.what for each in launch.push().accesses] == [region]
    engine.waitall()
    buffer.close()
    assert [each.what for each in launch.push().accesses] != [region]
    with pytest.raises(cs.OpError):
        engine.waitall()
    engine.clear_errors()
    cs.Device(0).reset()


@pytest.fixture
def other_device():
    if cs.device_count() < 2:
        pytest.skip("there is one device")
    return cs.Device(1)


def test_what_we_have_on_another_device_is_not_waited_for(engine, other_device):
    theirs = cs.array(np.array([1], np.uint32), device=other_device)
    x = cell(2)
    module = cs.Module.from_ptx(TEXT)
    table = table_of(x.ptr)
    with Held(engine, theirs):
        module.kernel("step_table")[1, 1](table, np.uint32(1)).wait(PATIENCE_S)
    assert x.numpy()[0] == 7


def test_an_op_says_what_it_is_ordered_by_and_why(engine, module):
    x, y = cell(), cell()
    table = table_of(x.ptr)

    def told(op):
        return [(each.what, each.reads, each.writes, each.reason) for each in op.accesses]

    (row,) = told(module.kernel("step")[1, 1](x, np.uint32(1)))
    assert row[:3] == (x.region, True, True)
    assert row[3].startswith("parameter `to`: read in line")
    (row,) = told(module.kernel("step")[1, 1](cs.In(x), np.uint32(1)))
    assert row == (x.region, True, False, "parameter `to`: declared In")
    first, second = told(module.kernel("step_struct")[1, 1](view(x.ptr, 1, y.ptr)))
    assert (first[0], second[0]) == (x.region, y.region)
    assert "the address in byte 16 of `v` (read in line" in second[3]
    first, whole, *counters = told(module.kernel("step_table")[1, 1](table, np.uint32(1)))
    assert first[0] == table.region
    assert "a pointer from memory, followed in line" in whole[3]
    assert whole[3].endswith("everything on device 0")
    assert module.variable("counter") in [each[0] for each in counters]
    (row,) = told(module.kernel("step_counter")[1, 1](np.uint32(1)))
    assert row[1:] == (True, True, "module global `counter`")


@pytest.mark.parametrize("how", [{"mode": "serial"}, {"trace": True}])
def test_ops_that_come_by_the_long_way_say_the_same(module, how):
    with cs.Engine(**how):
        x = cell()
        op = module.kernel("step")[1, 1](x, np.uint32(1))
        (row,) = op.accesses
        assert row.reason.startswith("parameter `to`: read in line")
        op = module.kernel("step")[1, 1](x.ptr, np.uint32(1), priority=1)
        assert [each.what for each in op.accesses] == [x.region]


def test_any_op_says_what_was_named(engine):
    x, y, variable = cell(), cell(), cs.Var("v")
    op = engine.push(lambda: None, reads=[x, variable], writes=[y, variable])
    told = {(each.what, each.reads, each.writes) for each in op.accesses}
    assert told == {(x.region, True, False), (y.region, False, True), (variable, True, True)}
    assert {each.reason for each in op.accesses} == {"named at the push"}
    plain = engine.push(lambda: None, writes=[variable])
    assert [(each.what, each.reads) for each in plain.accesses] == [(variable, False)]


def test_parameters_say_what_was_inferred_and_why(module):
    (struct,) = module.kernel("step_struct").parameters
    assert [each.offset for each in struct.fields] == [0, 16]
    assert [each.access for each in struct.fields] == [Access.READ_WRITE, Access.READ]
    assert "address at byte 16: read in line" in struct.reason
    assert module.kernel("step").parameters[1].reason == "never used as an address"
    assert "followed in line" in module.kernel("step_table").beyond
    assert module.kernel("step").beyond == ""


def test_a_module_that_can_not_be_read_is_ordered_with_everything(engine, monkeypatch):
    """The driver accepts the text, which is newer than our parser."""
    from cudasync.driver.kernels import module as modules
    from cudasync.errors import PtxError

    def refuse(text, file):
        raise PtxError("planned", file=file)

    monkeypatch.setattr(modules, "parse", refuse)
    step = cs.Module.from_ptx(TEXT).kernel("step")
    x, other = cell(2), cell()
    with Held(engine, other):
        op = step[1, 1](x, np.uint32(1))
        assert not op.done()
    assert x.numpy()[0] == 7


def test_a_call_on_arrays_alone_has_nothing_to_look_up():
    """The packing function for these types is generated once, without any look-up."""
    step, x = cs.Module.from_ptx(TEXT).kernel("step"), cell()
    step[1, 1](x, np.uint32(1))
    assert "widened" not in step.calls.latest.__code__.co_names
    assert not isinstance(step.prepare(grid=1, args=(x, np.uint32(1))), ReachingLaunch)
    step[1, 1](x.ptr, np.uint32(1))
    assert "widened" in step.calls.latest.__code__.co_names
