"""A matrix product split by columns or rows is the whole product; collectives are in the step."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.distributed.communicators import communicator
from helpers.distributed.tensor_parallel import Perceptron, Sizes, raise_unless_right, sizes
from hypothesis import given, note
from hypothesis import strategies as st

import cudasync as cs
from cudasync import xp
from cudasync.parallel import ColumnParallel, RowParallel
from cudasync.testing import HostLatch


def play(of, size, *, on_cpu=False):
    comm = communicator(size, on_cpu=on_cpu)
    raise_unless_right(of, comm, Perceptron(of, comm).step())


@given(st.randoms(use_true_random=False), st.integers(1, 3), st.booleans())
def test_any_perceptron_in_parts_is_the_one_in_one_piece(random, size, on_cpu):
    of = sizes(random)
    note(of)
    play(of, size, on_cpu=on_cpu)


def test_a_recorded_step_gives_it_too():
    of, comm = Sizes(3, 4, 5, 2), communicator(3)
    model = Perceptron(of, comm)
    with cs.graph() as graph:
        found = model.step()
    executable = graph.instantiate()
    for _ in range(2):
        executable.launch()
    raise_unless_right(of, comm, found)


def test_gradients_of_weights_are_computed_beside_the_all_reduce():
    """The all_reduce cannot begin, because its input on one rank is not written."""
    latch = HostLatch()
    with cs.Engine(workers=4) as engine:
        comm = communicator(2, on_cpu=True)
        layer = ColumnParallel(xp.ones((2, 2), device="cpu"), comm)
        x = comm.each(lambda rank, device: xp.ones((3, 2), device=device))
        gradient = comm.each(lambda rank, device: xp.ones((3, 1), device=device))
        engine.push(latch.wait, reads=[layer.weights[1]], writes=[layer.weights[1]])
        of_x, of_weights = layer.backward(x, gradient)
        assert of_weights[0].numpy().tolist() == [[3], [3]]
        assert not latch.is_released
        latch.release()
        assert of_x[0].numpy().tolist() == [[2, 2]] * 3


def _a_sum_is_left_out(planted):
    planted.setattr(RowParallel, "forward", RowParallel._products)


def _a_gradient_is_not_summed(planted):
    planted.setattr(
        ColumnParallel,
        "backward",
        lambda self, x, gradient: (self._of_inputs(gradient), self._of_weights(x, gradient)),
    )


@pytest.mark.parametrize(
    "plant",
    [_a_sum_is_left_out, _a_gradient_is_not_summed],
    ids=lambda each: each.__name__.strip("_"),
)
def test_a_planted_bug_is_found(plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play(Sizes(3, 4, 5, 2), 2, on_cpu=True)


@pytest.mark.parametrize("kind", [ColumnParallel, RowParallel])
def test_what_does_not_fit_is_refused(kind):
    comm = communicator(2, on_cpu=True)
    with pytest.raises(ValueError, match="matrix"):
        kind(xp.ones(3, device="cpu"), comm)
    with pytest.raises(TypeError, match=r"ndarray: use cs\.array"):
        kind(np.ones((3, 3)), comm)
    with pytest.raises(ValueError, match="each rank"):
        kind(xp.ones((3, 3), device="cpu"), comm).forward([xp.ones((1, 3), device="cpu")])
