"""Device faults are named, contained, and over after a reset."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.concurrency.thread_crew import engine_threads_end, lasting_engine_threads

import cudasync as cs
from cudasync.array.allocation import reap
from cudasync.testing import Latch

pytestmark = pytest.mark.loses_device

PATIENCE_S = 20.0
WILD = """
.version 6.4
.target sm_75
.address_size 64
.visible .entry wild(.param .u64 target, .param .u64 beyond)
{
    .reg .b64 %rd_target, %rd_beyond;
    ld.param.u64 %rd_target, [target];
    ld.param.u64 %rd_beyond, [beyond];
    add.s64 %rd_target, %rd_target, %rd_beyond;
    st.global.u32 [%rd_target], 1;
    ret;
}
"""


@pytest.fixture(params=["async", "serial"])
def engine(request):
    engine = cs.Engine(request.param)
    with cs.use(engine):
        yield engine
        # Foreign memory that a kernel with access to all memory has poisoned is usable again.
        engine.clear_errors()
    engine.close()
    cs.Device(0).reset()


@pytest.fixture
def wild():
    return cs.Module.from_ptx(WILD).kernel("wild")


def test_a_fault_names_the_op_and_where_it_was_pushed(engine, wild):
    x = cs.zeros(4, np.int32)
    wild[1, 1](x, np.uint64(1 << 40), name="the wild one")
    with pytest.raises(cs.OpError) as caught:
        x.numpy()
    assert caught.value.op == "the wild one"
    assert __file__ in caught.value.push_site
    assert isinstance(caught.value.cause, cs.CudaError)
    assert caught.value.cause.name == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert caught.value.cause.sticky


def test_host_work_is_not_lost_with_the_device(engine, wild):
    x, ran = cs.zeros(4, np.int32), []
    before = engine.push(lambda: ran.append("before"))
    op = wild[1, 1](x, np.uint64(1 << 40))
    engine.push(lambda: ran.append("needs x"), reads=[x])
    after = engine.push(lambda: ran.append("after"))
    before.wait()
    after.wait()
    assert op.exception() is not None
    with pytest.raises(cs.OpError):
        engine.waitall()
    assert sorted(ran) == ["after", "before"]


def test_a_reset_device_works_again(engine, wild):
    x = cs.zeros(4, np.int32)
    wild[1, 1](x, np.uint64(1 << 40)).exception()
    engine.clear_errors()
    cs.Device(0).reset()
    del x
    again = cs.array(np.arange(4, dtype=np.int32))
    assert again.numpy().tolist() == [0, 1, 2, 3]
    harmless = cs.Module.from_ptx(WILD).kernel("wild")
    harmless[1, 1](again, np.uint64(4))
    assert again.numpy().tolist() == [0, 1, 2, 3]


def test_work_for_a_dead_device_fails_with_the_same_cause(engine, wild):
    x = cs.zeros(4, np.int32)
    wild[1, 1](x, np.uint64(1 << 40), name="first").exception()
    late = engine.push(lambda stream: None, device=cs.Device(0))
    assert late.exception().op in ("first", "<lambda>")
    assert isinstance(late.exception().cause, cs.CudaError)


def test_a_reset_in_the_middle_ends_what_was_in_flight_and_nothing_else(engine):
    device = cs.Device(0)
    x, y = cs.zeros(4, np.int32), cs.zeros(4, np.int32)
    engine.waitall()
    lost = engine.push(
        lambda stream: cs.memset_async(x, 1, stream=stream), writes=[x], device=device
    )
    del y
    device.reset()
    assert cs.array(np.arange(4)).numpy().tolist() == [0, 1, 2, 3]
    error = lost.exception()
    assert error is None or isinstance(error.cause, cs.ClosedError)
    engine.clear_errors()
    engine.waitall()


def test_arrays_that_outlive_a_reset_say_so_and_leave_no_failure(engine):
    x = cs.zeros(4, np.int32)
    engine.waitall()
    cs.Device(0).reset()
    del x
    cs.zeros(4, np.int32).wait()
    engine.waitall()


def test_memory_that_is_let_go_between_the_fault_and_the_reset_fails_nobody(engine, wild):
    x, other = cs.zeros(4, np.int32), cs.zeros(4, np.int32)
    engine.waitall(PATIENCE_S)
    wild[1, 1](x, np.uint64(1 << 40))
    with pytest.raises(cs.OpError):
        engine.waitall(PATIENCE_S)
    engine.clear_errors()
    del other
    reap()
    engine.waitall(PATIENCE_S)


def test_clearing_a_fault_ends_the_threads_of_the_streams_it_gives_up(engine, wild):
    before = lasting_engine_threads()
    x = cs.zeros(4, np.int32)
    wild[1, 1](x, np.uint64(1 << 40)).exception()
    engine.clear_errors()
    assert engine_threads_end(before)


@pytest.mark.skipif(cs.device_count() < 2, reason="no such device: two are needed")
def test_a_copy_to_a_dead_device_does_not_take_what_it_waits_for_with_it():
    here, away = cs.Device(0), cs.Device(1)
    with Latch(here) as latch, cs.use(cs.Engine()) as engine:
        x, y = cs.zeros(4, np.int32, device=here), cs.zeros(4, np.int32, device=away)
        engine.waitall()
        cs.Module.from_ptx(WILD, device=away).kernel("wild")[1, 1](y, np.uint64(1 << 40))
        # The device is lost now, but the engine does not know.
        with pytest.raises(cs.CudaError):
            away.synchronize()
        held = engine.push(latch.hold, writes=[x], device=here)
        copy = cs.copy(y, x)
        latch.release()
        held.wait(PATIENCE_S)
        assert isinstance(copy.exception().cause, cs.CudaError)
        assert x.numpy().tolist() == [0] * 4
    # The wild kernel may have written all memory: its failure would stay with all addresses.
    engine.clear_errors()
    engine.close()
    away.reset()


@pytest.mark.parametrize("dies", ["before", "after", "never"])
def test_after_a_reset_addresses_carry_no_failure(wild, dies):
    """Memory of another library may lie there next."""
    other = cs.engine()
    with cs.Engine() as engine:
        x = cs.zeros(4, np.int32)
        region = x.region
        assert wild[1, 1](x, np.uint64(1 << 40)).exception(PATIENCE_S) is not None
        if dies == "before":
            del x
            reap()
        cs.Device(0).reset()
        if dies == "after":
            del x
            reap()
        other.push(lambda: None, reads=[region]).wait(PATIENCE_S)
        # What else the kernel may have written is poisoned, and later tests use it.
        engine.clear_errors()


def test_a_reset_spares_the_hazards_of_other_devices():
    here, away = cs.Device(0), cs.Device(1)
    x, gate = cs.zeros(4, np.int32, device=away), threading.Event()
    held = cs.engine().push(lambda: gate.wait(PATIENCE_S), writes=[x])
    cs.zeros(4, np.int32, device=here)
    here.reset()
    later = cs.engine().push(lambda: None, reads=[x])
    assert not later.done()
    gate.set()
    held.wait(PATIENCE_S)
    later.wait(PATIENCE_S)
