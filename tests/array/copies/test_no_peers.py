"""Devices without access to each other's memory: copies between them still work."""

from __future__ import annotations

import textwrap

import pytest
from helpers.repository.fork_server import run_warm

PREPARE = """
import random
import numpy as np, pytest
import cudasync as cs
from cudasync import xp
from cudasync.testing import Latch
from helpers.driver.call_counts import counted_calls

def rows_of(x, how):
    return {"all": x, "rows": x[1:5, 4:20], "steps": x[::2, ::3], "turned": x.T}[how]

WAYS = ("all", "rows", "steps", "turned")
SHAPE = (6, 24)

def moves(seed, count):
    draw = random.Random(seed)
    for _ in range(count):
        yield draw.sample(range(3), 2), draw.choice(WAYS), draw.choice((0, 1, 5))

def do(arrays, program, copy):
    for (to, of), how, added in program:
        copy(rows_of(arrays[to], how), rows_of(arrays[of], how))
        arrays[to] += added
"""


def where_peers_are(peers, body, **environment):
    """Run `body` on three devices with these peers; it fails by raising."""
    environment |= {
        "CUDASYNC_DEVICE": "soft",
        "CUDASYNC_SOFTGPU_DEVICES": "3",
        "CUDASYNC_SOFTGPU_PEERS": peers,
    }
    done = run_warm(PREPARE + textwrap.dedent(body), 60, **environment)
    assert done.code == 0, done.err
    assert done.out + done.err == ""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scheduler", ["fifo", "seed=5", "threaded"])
def test_any_view_arrives_in_the_order_of_the_engine(scheduler):
    where_peers_are(
        "none",
        """
        for kind in ("async", "serial"):
            with cs.Engine(kind):
                hosts = [np.arange(144, dtype=np.int32).reshape(SHAPE) * n for n in (1, 10, 100)]
                arrays = [cs.array(host, device=n) for n, host in enumerate(hosts)]
                program = list(moves(7, 60))
                do(hosts, program, np.copyto)
                do(arrays, program, cs.copy)
                for host, array in zip(hosts, arrays, strict=True):
                    assert array.numpy().tolist() == host.tolist()
        """,
        CUDASYNC_SOFTGPU_SCHEDULER=scheduler,
    )


GRAPHS = """
def run(without=()):
    hosts = [np.arange(144, dtype=np.int32).reshape(SHAPE) * n for n in (1, 10, 100)]
    arrays = [cs.array(host, device=n) for n, host in enumerate(hosts)]
    program = list(moves(3, 12))
    with cs.graph() as g:
        do(arrays, program, cs.copy)
        with g.repeat(2):
            cs.copy(arrays[1][:, :8], arrays[0][:, 8:16])
            arrays[1] += 1
    exe = g.instantiate(without=without)
    for _ in range(2):
        exe.launch()
        do(hosts, program, np.copyto)
        for _ in range(2):
            np.copyto(hosts[1][:, :8], hosts[0][:, 8:16])
            hosts[1] += 1
    for host, array in zip(hosts, arrays, strict=True):
        assert array.numpy().tolist() == host.tolist()
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("peers", ["none", "0-2", "all"])
def test_it_arrives_within_a_graph(peers):
    where_peers_are(peers, GRAPHS + "run()\nrun(without=('copies', 'edges', 'unroll'))")


def test_a_planted_bug_is_found():
    """The planted bug: a copy without peer access becomes a node of the driver's graph."""
    body = """
    from cudasync.graph.transfers import Transfer
    Transfer.is_for_calls = False
    with pytest.raises(cs.CudaError, match="801"):
        run()
    """
    where_peers_are("0-2", GRAPHS + textwrap.dedent(body))


def test_a_copy_is_one_call_of_the_driver_and_nobody_waits():
    where_peers_are(
        "none",
        """
        with cs.Engine() as engine:
            x = cs.array(np.arange(144, dtype=np.int32).reshape(SHAPE), device=0)
            y, z = (cs.zeros(SHAPE, np.int32, device=n) for n in (1, 2))
            back = cs.pinned_empty(SHAPE, np.int32)
            cs.waitall()
            with Latch(cs.Device(0)) as latch, counted_calls() as calls:
                engine.push(latch.hold, writes=[x], device=0)
                ops = [cs.copy(y, x), cs.copy(z[:, :8], y[:, 8:16]), cs.copy(back, z)]
                assert not any(op.done() for op in ops)
                latch.release()
                ops[-1].wait()
            assert (back[:, :8] == np.arange(144).reshape(SHAPE)[:, 8:16]).all()
            copies = {name: n for name, n in calls.items() if "Memcpy" in name}
            assert copies == {
                "cuMemcpyPeerAsync": 1, "cuMemcpy3DPeerAsync": 1, "cuMemcpyDtoHAsync": 1
            }
        """,
    )


def test_a_kernel_that_would_need_access_is_refused_before_anything_is_enqueued():
    where_peers_are(
        "0-1",
        """
        from cudasync.array.kernels.bundled_ptx import kernel_file
        fill = cs.Module.from_file(kernel_file("fill")).kernel("fill_u32")
        one, four = np.uint32(1), np.uint32(4)
        x, y = (cs.zeros(4, np.uint32, device=n) for n in (1, 2))
        for _ in range(2):
            fill[1, 4](one, x, four, device=0)
            with pytest.raises(ValueError, match="Device.0. has no peer access .* Device.2.: copy"):
                fill[1, 4](one, y, four, device=0)
        assert x.numpy().tolist() == [1] * 4
        fill[1, 4](one, y.to_device(0), four)
        assert y.numpy().tolist() == [0] * 4
        """,
    )
