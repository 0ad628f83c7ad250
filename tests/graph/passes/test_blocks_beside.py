"""Blocks together with other features of graphs: arguments, costs, closing, graph functions."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import cudasync as cs

# Blocks themselves are the subject, so that few rounds must stay rounds.
pytestmark = pytest.mark.usefixtures("rounds_stay")


@pytest.fixture
def x():
    return cs.array(np.arange(4, dtype=np.float32))


def test_a_block_works_on_the_arguments_of_the_launch(x):
    y, times = cs.zeros(4), cs.array([2])
    with cs.graph() as g:
        target, left = g.argument("target", x), g.argument("left", times)
        with g.while_loop(left):
            target *= 2
            left -= 1
    with g.instantiate() as exe:
        exe.launch()
        y += 1
        exe.update(target=y, left=cs.array([3]))
        exe.launch()
        assert x.numpy().tolist() == [0, 4, 8, 12]
        assert y.numpy().tolist() == [8] * 4


def test_a_block_is_measured_as_one(x):
    with cs.graph() as g:
        x += 1
        with g.repeat(3):
            x *= 2
    exe = g.instantiate()
    exe.measure()
    assert x.numpy().tolist() == [8, 16, 24, 32]
    assert [node.name for node, _ in exe.critical_path()] == ["add", "repeat(3)"]


def test_a_launch_that_was_pushed_is_carried_out_though_its_executable_is_closed(x):
    gate = threading.Event()
    with cs.graph() as g, g.repeat(3):
        x += 1
    exe = g.instantiate()
    cs.engine().push(gate.wait, writes=x)
    exe.launch()
    exe.close()
    gate.set()
    assert x.numpy().tolist() == [3, 4, 5, 6]
    with pytest.raises(cs.ClosedError):
        exe.launch()


def test_a_buffer_that_a_block_uses_and_that_is_freed_is_told_of(x):
    kernel = cs.Module.from_cuda(
        'extern "C" __global__ void set(float *x) { x[threadIdx.x] = 1; }'
    ).kernel("set")
    buffer = cs.DeviceBuffer(16)
    with cs.graph() as g, g.repeat(2):
        kernel[1, 4](buffer)
    exe = g.instantiate()
    exe.launch().wait()
    buffer.close()
    with pytest.raises(cs.ClosedError, match="record the graph with an open"):
        exe.launch()
