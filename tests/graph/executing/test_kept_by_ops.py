"""What an op keeps alive once it is over. It may stay the last writer of its data for ever.

Each kind of op works on an array and calls a function of the program, or both. Then the program
drops all but the op, and both must be gone.
"""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress

import numpy as np
import pytest

import cudasync as cs
from cudasync import xp
from cudasync.errors import CudasyncError
from cudasync.graph.fault_candidates import Candidates

ADD_ONE = r"""
extern "C" __global__ void add_one(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1.0f;
}
"""
SIZE = 1 << 12


@pytest.fixture(scope="module")
def add_one():
    return cs.Module.from_cuda(ADD_ONE).kernel("add_one")


class Thing:
    """An object of the program's, which functions of ops refer to."""

    def __call__(self, *_):
        pass

    def fail(self, *_):
        raise ValueError("planned")


def launched(record, *, times=1, update=None):
    """The op of a launch of what `record` records; the graph and its executable are gone."""
    with cs.graph() as g:
        record(g)
    exe = g.instantiate(without=("unroll",))
    if update is not None:
        exe.launch()
        exe.update(**update)
    return [exe.launch() for _ in range(times)][-1]


def poisoned(x):
    """Let the array be poisoned."""
    return cs.engine().push(Thing().fail, writes=x, name="poison")


def of_host(engine, add_one, thing, x):
    return engine.push(lambda: thing(), reads=x, writes=cs.Var("v"))


def of_host_on_variables(engine, add_one, thing, x):
    return engine.push(lambda: thing(x), writes=cs.Var("v"))


def of_host_behind_another(engine, add_one, thing, x):
    v = cs.Var("v")
    engine.push(lambda: thing(x), writes=v, name="first")
    return engine.push(lambda: thing(x), reads=v, writes=v, priority=1)


def of_host_that_fails(engine, add_one, thing, x):
    return engine.push(lambda: thing.fail(x), writes=cs.Var("v"))


def of_host_that_is_poisoned(engine, add_one, thing, x):
    poisoned(x)
    return engine.push(lambda: thing(x), reads=x, writes=cs.Var("v"))


def of_a_batch_of_functions(engine, add_one, thing, x):
    return engine.push_many([(lambda: thing(), [x], [x])] * 2)


def of_a_batch_of_launches(engine, add_one, thing, x):
    return engine.push_many([add_one.prepare(grid=16, block=256, args=(x, SIZE))] * 2)


def of_a_batch_on_a_device(engine, add_one, thing, x):
    return engine.push_many([(lambda stream: thing(x), [x], [x], 0)] * 2)


def of_a_launch(engine, add_one, thing, x):
    return add_one[16, 256](x, SIZE)


def of_a_poisoned_launch(engine, add_one, thing, x):
    poisoned(x)
    return add_one[16, 256](x, SIZE)


def of_a_function_of_a_stream(engine, add_one, thing, x):
    return engine.push(
        lambda stream: (thing(), cs.memset_async(x, 0, stream=stream)), writes=x, device=0
    )


def of_a_function_of_a_stream_that_fails(engine, add_one, thing, x):
    return engine.push(lambda stream: thing.fail(x), writes=x, device=0)


def of_a_copy(engine, add_one, thing, x):
    return cs.copy(cs.empty(SIZE), x)


def of_a_copy_of_rows(engine, add_one, thing, x):
    return cs.copy(cs.empty((64, SIZE // 64)), xp.reshape(x, (SIZE // 64, 64)).T)


def of_a_copy_to_the_host(engine, add_one, thing, x):
    return cs.copy(np.empty(SIZE, np.float32), x)


def of_an_operator(engine, add_one, thing, x):
    x += 1
    return engine.push(lambda: thing(), reads=x)


def of_a_reduction(engine, add_one, thing, x):
    total = xp.sum(x)
    return engine.push(lambda: thing(), reads=total)


def of_a_sort(engine, add_one, thing, x):
    return engine.push(lambda: thing(), reads=xp.sort(x))


def of_a_graph(engine, add_one, thing, x):
    return launched(lambda g: add_one[16, 256](x, SIZE))


def of_a_graph_of_operators(engine, add_one, thing, x):
    return launched(lambda g: x.__iadd__(xp.sum(x * 2)), times=2)


def of_a_graph_with_a_function_of_a_stream(engine, add_one, thing, x):
    return launched(lambda g: of_a_function_of_a_stream(cs.engine(), add_one, thing, x))


def of_a_graph_with_arguments(engine, add_one, thing, x):
    return launched(
        lambda g: add_one[16, 256](g.argument("x", cs.empty(SIZE)), SIZE), update={"x": x}
    )


def of_a_graph_on_the_host(engine, add_one, thing, x):
    return launched(
        lambda g: [cs.engine().push(lambda: thing(x), writes=cs.Var("v")) for _ in range(3)]
    )


def of_a_graph_on_the_host_that_fails(engine, add_one, thing, x):
    return launched(
        lambda g: [
            cs.engine().push(lambda: thing(x), writes=cs.Var("v")),
            cs.engine().push(lambda: thing.fail(x), writes=cs.Var("w")),
        ]
    )


def of_a_graph_on_the_host_with_a_poisoned_input(engine, add_one, thing, x):
    poisoned(x)
    return launched(
        lambda g: [
            cs.engine().push(lambda: thing(x), reads=x, writes=cs.Var("v")),
            cs.engine().push(lambda: thing(), writes=cs.Var("w")),
        ]
    )


def of_a_graph_with_a_poisoned_input(engine, add_one, thing, x):
    poisoned(x)
    y = cs.zeros(SIZE)
    return launched(lambda g: (add_one[16, 256](x, SIZE), add_one[16, 256](y, SIZE)))


def of_a_graph_with_an_op_alone(engine, add_one, thing, x):
    return launched(lambda g: cs.copy(x, np.ones(SIZE, np.float32)))


def of_a_loop_of_a_device(engine, add_one, thing, x):
    def record(g):
        with g.repeat(3):
            add_one[16, 256](x, SIZE)

    return launched(record)


def of_a_loop_of_the_engine(engine, add_one, thing, x):
    def record(g):
        with g.repeat(3):
            cs.engine().push(lambda: thing(x), writes=cs.Var("v"))

    return launched(record)


def of_a_loop_of_the_engine_that_fails(engine, add_one, thing, x):
    def record(g):
        with g.repeat(3):
            cs.engine().push(lambda: thing.fail(x), writes=cs.Var("v"))

    return launched(record)


def of_a_fence(engine, add_one, thing, x):
    engine.push(lambda: thing(x), reads=x, writes=x)
    return engine._mark([x])


KINDS = {
    name.removeprefix("of_"): each for name, each in dict(globals()).items() if name[:3] == "of_"
}


def left(kind, add_one, engine):
    """The things that the op of this kind keeps alive, by name."""
    thing, x = Thing(), cs.array(np.ones(SIZE, np.float32))
    refs = {"an object of the program": weakref.ref(thing), "memory": weakref.ref(x._allocation)}
    # Leaving the block ends the threads, which may still be tidying up behind a wait.
    with suppress(CudasyncError), engine:
        op = KINDS[kind](engine, add_one, thing, x)
        del thing, x
    assert op.finished
    # A failure that a wait raised has the frames of that wait.
    gc.collect()
    return [name for name, each in refs.items() if each() is not None]


@pytest.mark.parametrize("mode", ["async", "serial"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_op_that_is_over_keeps_nothing_alive(add_one, kind, mode):
    assert not left(kind, add_one, cs.Engine(mode))


@pytest.mark.parametrize("kind", [each for each in KINDS if each.startswith("a_graph")])
def test_an_op_that_was_profiled_keeps_nothing_alive(add_one, kind):
    with cs.profile():
        assert not left(kind, add_one, cs.Engine())


def test_a_planted_bug_is_found(add_one, monkeypatch):
    right = Candidates.of.__func__

    def keeping(cls, nodes, ends=(), salvage=None):
        made = right(cls, nodes, ends, salvage)
        made.bug = nodes
        return made

    monkeypatch.setattr(Candidates, "of", classmethod(keeping))
    assert left("a_graph", add_one, cs.Engine()) == ["memory"]
