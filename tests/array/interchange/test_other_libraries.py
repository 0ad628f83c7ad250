"""Independent libraries, not written for these tests: NumPy, and cuda.core if installed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.arrays.dlpack_tensors import TheirTensor
from helpers.arrays.foreign_arrays import is_held_up

import cudasync as cs
from cudasync.array.allocation import reap
from cudasync.driver import check
from cudasync.driver.interchange import dlpack_export
from cudasync.testing import Latch

TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def engine():
    with cs.Engine() as engine:
        yield engine


@pytest.fixture
def managed():
    """The address of 64 bytes of managed memory, which host and device can both read."""
    cs.Device(0).use()
    flags = driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value
    address = int(check(driver.cuMemAllocManaged(64, flags), "cuMemAllocManaged"))
    yield address
    cs.Device(0).synchronize()
    driver.cuMemFree(address)


def test_numpy_reads_managed_memory_that_we_pass_on(managed):
    """Their structure comes in, ours goes out. NumPy's C code reads ours and returns it. It names
    no stream, so the export waits for the copy."""
    theirs = TheirTensor(np.zeros((4, 4), np.int32), device_type=13, data=managed)
    mine = cs.from_dlpack(theirs)
    assert mine.__dlpack_device__() == (13, 0)
    cs.copy(mine, np.arange(16, dtype=np.int32).reshape(4, 4))
    host = np.from_dlpack(mine[1:, ::2])
    assert host.tolist() == [[4, 6], [8, 10], [12, 14]]
    assert host.ctypes.data == managed + 16
    del mine, host
    reap()
    cs.waitall()
    assert not dlpack_export._loans
    assert theirs.deleted == 1


def test_numpy_refuses_device_memory_without_losing_its_own_error():
    x = cs.zeros(4)
    with pytest.raises((BufferError, RuntimeError), match="evice"):
        np.from_dlpack(x)
    gc.collect()
    reap()
    assert not dlpack_export._loans


@pytest.fixture
def core():
    return pytest.importorskip("cuda.core", minversion="0.3")


@pytest.fixture
def core_device(core):
    # cuda.core finds the driver that we use.
    cs.Device(0).use()
    device = core.Device(0)
    device.set_current()
    return device


@pytest.mark.parametrize("protocol", ["from_dlpack", "from_cuda_array_interface"])
def test_cuda_core_views_our_arrays_in_order(engine, core_device, protocol):
    from cuda.core.utils import StridedMemoryView

    stream, x, latch = core_device.create_stream(), cs.zeros((3, 4), np.float32), Latch()
    with latch:
        engine.push(latch.hold, device=cs.Device(0), writes=[x])
        view = getattr(StridedMemoryView, protocol)(x[1:], stream_ptr=int(stream.handle))
        assert (view.ptr, view.shape, view.dtype) == (x.ptr + 16, (2, 4), np.float32)
        assert is_held_up(cs.Stream.from_object(stream).query)
    stream.sync()
    del view
    reap()
    assert not dlpack_export._loans


def test_cuda_core_lends_us_memory(core_device):
    stream = core_device.create_stream()
    theirs = core_device.allocate(64, stream=stream)
    # The export of cuda.core orders nothing, so this line waits for its stream.
    stream.sync()
    mine = cs.from_dlpack(theirs)
    assert (mine.ptr, mine.nbytes) == (int(theirs.handle), 64)
    cs.copy(mine, np.arange(64).astype(mine.dtype))
    assert mine.numpy().tolist() == list(range(64))
    del mine
    reap()
    cs.waitall()
    theirs.close(stream)


def test_a_stream_of_cuda_core_is_taken_over_and_handed_over(core_device):
    stream, x = core_device.create_stream(), cs.zeros(16, np.uint8)
    cs.hand_over(x, to=stream)
    cs.memset_async(x, 7, stream=stream)
    cs.take_over(x, after=stream)
    assert x.numpy().tolist() == [7] * 16


def test_graphs_of_cuda_core_are_used_by_their_handles(core, core_device):
    graphs = pytest.importorskip("cuda.core.graph")
    stream, memory = core_device.create_stream(), core.LegacyPinnedMemoryResource().allocate(64)
    view = np.from_dlpack(memory).view(np.uint8)
    definition = graphs.GraphDefinition()
    first = definition.memset(memory, np.uint8(1), 32)
    theirs = cs.Graph.from_handle(int(definition.handle))
    (node,) = theirs.nodes
    assert (node.kind, node.handle) == ("memset", int(first.handle))
    # A node that we add is also in their definition, and in the executables that they make of it.
    other = cs.Module.from_file(TESTS / "helpers" / "kernels.ptx").kernel("set")
    ours = cs.DeviceBuffer(64)
    theirs.add_kernel(other.prepare(grid=1, block=16, args=(ours, 5, np.uint32(16))), [node])
    assert len(definition.nodes()) == 2
    executable = definition.instantiate()
    view[:] = 0
    cs.GraphExec.from_handle(int(executable.handle)).launch(stream)
    with theirs.instantiate() as mine:
        mine.launch(stream)
    found = np.zeros(16, np.int32)
    cs.memcpy_async(found, ours, stream=stream)
    stream.sync()
    assert view.tolist() == [1] * 32 + [0] * 32
    assert found.tolist() == [5 + i for i in range(16)]
    theirs.close()
    assert definition.is_valid


def test_a_recorded_graph_is_launched_on_a_stream_of_cuda_core(core_device):
    stream, x = core_device.create_stream(), cs.zeros(16, np.uint8)
    with cs.graph() as g:
        x += 1
    with g.instantiate() as executable:
        cs.hand_over(x, to=stream)
        cs.memset_async(x, 7, stream=stream)
        cs.take_over(x, after=stream)
        executable.launch(stream)
    assert x.numpy().tolist() == [8] * 16


def test_a_process_may_end_with_loans_both_ways_open():
    """The last loan is dropped after the interpreter has ended: no Python of ours may run then."""
    program = """
        import builtins, numpy as np, cudasync as cs
        from cuda.bindings import driver
        from helpers.arrays.dlpack_tensors import Consumer, TheirTensor
        x = cs.array(np.arange(4))
        theirs = cs.from_dlpack(TheirTensor(np.arange(4)))
        lent = Consumer(x.__dlpack__())
        unused = x.__dlpack__()
        managed = driver.cuMemAllocManaged(64, 1)[1]
        # What hangs on the last module to go is dropped last.
        builtins.kept = np.from_dlpack(cs.from_dlpack(
            TheirTensor(np.arange(8), device_type=13, data=int(managed))))
        print("at the end")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "at the end\n", "")
