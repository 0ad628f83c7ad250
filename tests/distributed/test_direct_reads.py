"""Local reductions read other ranks' memory where it is, if the devices are peers."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
from helpers.arrays.dlpack_tensors import TheirTensor
from helpers.distributed.collective_programs import (
    expected,
    place,
    programs,
    raise_unless_same,
    results,
    run,
)
from helpers.repository.fork_server import run_warm
from hypothesis import given, note, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.array.elementwise.plan import DevicePlan
from cudasync.distributed import reductions
from cudasync.engine.op import OpKind
from cudasync.testing import check

LONG = 30000


@pytest.fixture
def comm():
    if cs.device_count() < 2:
        pytest.skip("needs two devices")
    with cs.distributed.init("local", devices=[0, 1]) as made:
        yield made


def pushed(comm, arrays, **options):
    """The number of device ops of an all-reduce whose memory and kernels exist."""
    with cs.Engine() as engine:
        for _ in range(2):
            comm.all_reduce(arrays, **options).wait()
        before = engine.statistics().device_ops
        comm.all_reduce(arrays, **options).wait()
        return engine.statistics().device_ops - before


def ones(comm, length):
    return comm.each(lambda rank, device: cs.array(np.ones(length, np.int32), device=device))


def test_peers_need_no_copy_before_a_combination(comm, monkeypatch):
    # Each device combines its half, and copies the other half.
    assert pushed(comm, ones(comm, LONG)) == 4
    # The first device combines, the other one copies.
    assert pushed(comm, ones(comm, 60)) == 2
    monkeypatch.setattr(reductions, "gets_peer_access", lambda device, other: False)
    assert pushed(comm, ones(comm, LONG)) == 6
    assert pushed(comm, ones(comm, 60)) == 3


def test_ranks_on_one_device_need_none_either():
    with cs.distributed.init("local", devices=[0, 0]) as comm:
        assert pushed(comm, ones(comm, LONG)) == 4


def test_memory_of_other_libraries_is_copied(comm):
    # Its owner decides which devices have access.
    theirs = TheirTensor(np.ones(LONG, np.int32))
    x = [cs.from_dlpack(theirs), ones(comm, LONG)[1]]
    assert pushed(comm, x) == 5
    assert [each.numpy().tolist() for each in x] == [[8] * LONG] * 2


def test_memory_of_a_pool_without_access_is_copied():
    body = """
        import numpy as np, cudasync as cs
        from cuda.bindings import driver as d
        comm = cs.distributed.init("local", devices=[0, 1])
        def reduced():
            x = comm.each(lambda r, device: cs.array(np.ones(30000, np.int32), device=device))
            comm.all_reduce(x).wait()
            return [int(each.numpy().sum()) for each in x]
        print(reduced())
        for ordinal in (0, 1):
            cs.Device(ordinal).use()
            props = d.CUmemPoolProps()
            props.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
            props.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            props.location.id = ordinal
            code, pool = d.cuMemPoolCreate(props)
            assert code == 0 and d.cuDeviceSetMemPool(ordinal, pool)[0] == 0
        print(reduced())
        """
    environment = {"CUDASYNC_SOFTGPU_DEVICES": "2", "CUDASYNC_DEVICE": "soft"}
    done = run_warm(textwrap.dedent(body), 60, **environment)
    assert done.out == "[60000, 60000]\n" * 2, done.err


@pytest.mark.parametrize("places", [[0, 1], [0, 0]])
def test_elements_that_no_kernel_reads_are_copied(places):
    with cs.distributed.init("local", devices=[each % cs.device_count() for each in places]) as c:
        x = ones(c, 11)
        odd = cs.array(np.zeros((11, 6), np.uint8), device=c.devices[1])[:, :4].view(np.int32)
        out = ones(c, 11)
        c.all_reduce([x[0], odd[:, 0]], out)
        assert [each.numpy().tolist() for each in out] == [[1] * 11] * 2


def test_a_recorded_reduction_copies(comm):
    x = ones(comm, LONG)
    with cs.graph() as graph:
        comm.all_reduce(x)
    assert sum(each.kind is OpKind.DTOD for each in graph.nodes) == 4
    graph.instantiate().launch().wait()
    assert [each.numpy().tolist() for each in x] == [[2] * LONG] * 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("peers", ["none", "0-2"])
def test_the_answer_is_the_same_where_devices_are_no_peers(peers):
    body = """
        import numpy as np, cudasync as cs
        for length in (60, 30030):
            comm = cs.distributed.init("local", devices=[0, 1, 2])
            x = comm.each(lambda r, d: cs.array(np.arange(length) % 7 + r, device=d))
            for _ in range(3):
                comm.all_reduce(x)
            want = (np.arange(length) % 7 * 3 + 3) * 9
            assert all((each.numpy() == want).all() for each in x)
        """
    environment = {"CUDASYNC_SOFTGPU_DEVICES": "3", "CUDASYNC_SOFTGPU_PEERS": peers}
    done = run_warm(textwrap.dedent(body), 60, CUDASYNC_DEVICE="soft", **environment)
    assert (done.code, done.out + done.err) == (0, "")


def without_order(program, size):
    """The findings between commands of a program with collectives, whose results are right."""
    found = []

    def play():
        comm = cs.distributed.init("local", devices=[r % cs.device_count() for r in range(size)])
        with cs.Engine():
            rows = place(program, comm)
            run(program, comm, rows)
            found.append(results(rows))

    findings = check(play, kinds=["race"])
    raise_unless_same(found[0], expected(program, size))
    return findings


@given(programs(5), st.sampled_from([2, 3]))
@settings(max_examples=10)
def test_every_read_is_ordered_with_all_writes(program, size):
    note(program)
    assert without_order(program, size) == []


def test_a_read_that_is_not_declared_is_found(comm, monkeypatch):
    x, out = ones(comm, LONG), ones(comm, LONG)
    cs.waitall()

    def play():
        x[0] += 1
        comm.all_reduce(x, out).wait()

    packed = DevicePlan._packed

    def forgets_peers(self, operands, result):
        launch, regions = packed(self, operands, result)
        theirs = {
            e.region for e in operands if isinstance(e, cs.Array) and e.device != result.device
        }
        return launch, tuple(each for each in regions if each not in theirs)

    assert check(play, kinds=["race"]) == []
    monkeypatch.setattr(DevicePlan, "_packed", forgets_peers)
    assert check(play, kinds=["race"])


def test_a_read_without_access_is_a_fault():
    """The software GPU lets no kernel use a device's memory before it was given access."""
    body = """
        import numpy as np, cudasync as cs
        from cudasync.distributed import reductions
        reductions.gets_peer_access = lambda device, other: True
        comm = cs.distributed.init("local", devices=[0, 1])
        x = comm.each(lambda r, d: cs.array(np.arange(60), device=d))
        try:
            comm.all_reduce(x).wait()
        except cs.CudasyncError as error:
            print("ILLEGAL_ADDRESS" in str(error))
        """
    environment = {"CUDASYNC_SOFTGPU_DEVICES": "2", "CUDASYNC_DEVICE": "soft"}
    done = run_warm(textwrap.dedent(body), 60, **environment)
    assert done.out == "True\n", done.err
