"""Arrays that a recording made cannot be read before a launch of it is pushed."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp
from cudasync.errors import RecordingError
from cudasync.graph import recorder

PUT = r"""
extern "C" __global__ void put(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 3.0f;
}
"""
SIZE = 16


@pytest.fixture(scope="module")
def put():
    return cs.Module.from_cuda(PUT).kernel("put")


@pytest.fixture
def a():
    return cs.array(np.ones(SIZE, np.float32))


@pytest.fixture(autouse=True)
def _own_engine():
    """Ops that read what is unlaunched fail: the next test gets another engine."""
    with cs.Engine() as engine:
        yield
        engine.clear_errors()


def filled(put):
    made = cs.empty(SIZE)
    put[1, 32](made, SIZE)
    return made


MAKERS = {
    "an operator": lambda a, put: a * 3,
    "operators": lambda a, put: (a + 1) * 2 - a,
    "in place": lambda a, put: (a * 2).__iadd__(1),
    "a view of a result": lambda a, put: (a * 3)[2:8],
    "zeros": lambda a, put: cs.zeros(SIZE) + 3,
    "zeros alone": lambda a, put: cs.zeros(SIZE),
    "host data": lambda a, put: cs.array(np.full(SIZE, 3, np.float32)),
    "a kernel": lambda a, put: filled(put),
    "a copy": lambda a, put: a.copy(),
    "a reduction": lambda a, put: xp.sum(a),
    "a sort": lambda a, put: xp.sort(a * 3),
    "a scan": lambda a, put: xp.cumulative_sum(a),
    "a cast": lambda a, put: xp.astype(a, np.int32),
    "a comparison": lambda a, put: a > 0,
    "picks": lambda a, put: a[cs.array([0, 3])],
}
READERS = {
    "numpy": lambda y: y.numpy(),
    "a wait": lambda y: y.wait(),
    "an operator": lambda y: (y == y).numpy(),
    "a reduction": lambda y: bool(xp.any(y == y)),
    "a copy": lambda y: cs.copy(np.empty(y.shape, y.dtype), y).wait(),
    "a host op": lambda y: cs.engine().push(lambda: None, reads=y).wait(),
    "a move": lambda y: y.to_device("cpu").numpy(),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_what_a_recording_made_has_no_value_before_a_launch(a, put, maker):
    """Each way to read is refused before, and gives the eager value afterwards."""
    with cs.graph() as g:
        y = MAKERS[maker](a, put)
    expected = MAKERS[maker](a, put).numpy()
    exe = None
    for state in ("recorded", "instantiated", "launched"):
        if state == "instantiated":
            exe = g.instantiate()
        elif state == "launched":
            exe.launch()
        for read in READERS.values():
            if state == "launched":
                read(y)
            else:
                with pytest.raises(RecordingError, match="no launch of that graph"):
                    read(y)
    np.testing.assert_array_equal(y.numpy(), expected)
    cs.engine().clear_errors()
    exe.launch()
    np.testing.assert_array_equal(y.numpy(), expected)


@pytest.mark.parametrize("way", ["a stream", "a measurement", "in another graph", "an update"])
def test_every_launch_counts(a, way):
    with cs.graph() as g:
        x = g.argument("x", a)
        y = x * 3
    exe = g.instantiate()
    if way == "a stream":
        stream = cs.Stream()
        exe.launch(stream)
        stream.synchronize()
    elif way == "a measurement":
        exe.measure()
    elif way == "an update":
        exe.update(x=cs.array(np.ones(SIZE, np.float32)))
        exe.launch()
    else:
        with cs.graph() as outer:
            exe.launch()
            z = y + 1
        with pytest.raises(RecordingError, match="no launch"):
            y.numpy()
        outer.instantiate().launch()
        assert z.numpy().tolist() == [4] * SIZE
    assert y.numpy().tolist() == [3] * SIZE


def test_a_block_makes_no_value_before_a_launch(a):
    with cs.graph() as g:
        total = a * 0
        with g.repeat(3):
            step = a * 2
            total += step
    with pytest.raises(RecordingError):
        total.numpy()
    with pytest.raises(RecordingError):
        step.numpy()
    g.instantiate().launch()
    assert total.numpy().tolist() == [6] * SIZE
    assert step.numpy().tolist() == [2] * SIZE


def test_what_a_broken_recording_made_never_has_a_value(a):
    made = []

    def record():
        with cs.graph() as g:
            made.append(a * 3)
            with g.repeat(2):
                made.append(a * 4)
                raise KeyError

    with pytest.raises(KeyError):
        record()
    for each in made:
        with pytest.raises(RecordingError, match="no launch"):
            each.numpy()


def test_arrays_of_others_keep_their_values(a):
    with cs.graph() as g:
        b = a * 2
        a += b
    assert a.numpy().tolist() == [1] * SIZE
    g.instantiate().launch()
    assert a.numpy().tolist() == [3] * SIZE


def test_the_program_may_give_a_value_itself(a):
    """A graph may count in memory that the program prepares before the first launch."""
    with cs.graph() as g:
        count = cs.empty(SIZE)
        count += a
    count[...] = 5
    assert count.numpy().tolist() == [5] * SIZE
    exe = g.instantiate()
    exe.launch()
    exe.launch()
    assert count.numpy().tolist() == [7] * SIZE


def test_a_first_launch_that_fails_poisons_as_any_launch(a):
    bad = cs.array(np.ones(SIZE, np.float32))
    cs.engine().push(lambda: 1 / 0, writes=bad)
    with cs.graph() as g:
        good, wrong = a * 3, bad * 3
    exe = g.instantiate()
    exe.launch()
    assert good.numpy().tolist() == [3] * SIZE
    with pytest.raises(cs.OpError, match="division"):
        wrong.numpy()
    exe.launch()
    with pytest.raises(cs.OpError, match="division"):
        wrong.numpy()


def test_memory_that_a_graph_dropped_is_not_touched_by_its_first_launch(a):
    """A temporary's memory may be another array's by then, and that array's failure stays."""
    with cs.graph() as g:
        y = (a + 1) * 2
    exe = g.instantiate()
    del g
    others = [a * 7 for _ in range(8)]
    for each in others:
        cs.engine().push(lambda: 1 / 0, writes=each)
    exe.launch()
    assert y.numpy().tolist() == [4] * SIZE
    for each in others:
        with pytest.raises(cs.OpError, match="division"):
            each.numpy()


def test_a_planted_bug_is_found(a, put, monkeypatch):
    monkeypatch.setattr(recorder, "made_by", lambda nodes, allocated: [])
    with pytest.raises(BaseException, match="DID NOT RAISE"):
        test_what_a_recording_made_has_no_value_before_a_launch(a, put, "an operator")
