"""An engine that is held by a name, inside of a recording: all its verbs lead to the recorder."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import cudasync as cs
from cudasync.engine import Engine
from cudasync.errors import RecordingError
from cudasync.graph.recorded_engine import RecordedEngine

ADD_ONE = r"""
extern "C" __global__ void add_one(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1.0f;
}
"""


@pytest.fixture
def engine():
    with cs.Engine() as made:
        yield made


@pytest.fixture
def x():
    return cs.zeros(64)


@pytest.fixture(scope="module")
def add_one():
    return cs.Module.from_cuda(ADD_ONE).kernel("add_one")


def pushes(add_one, x, seen):
    """For each verb, a function that pushes by it onto an engine."""
    prepared = add_one.prepare(grid=2, block=32, args=(x, 64))
    host = np.zeros(64, np.float32)
    return {
        "push": lambda e: e.push(lambda: seen.append("push"), writes=x),
        "push by keywords": lambda e: e.push(fn=lambda: seen.append("push"), reads=[x], name="a"),
        "push to a device": lambda e: e.push(
            lambda stream: cs.memset_async(x, 0, stream=stream), writes=x, device=0
        ),
        "push with a priority": lambda e: e.push(lambda: seen.append("push"), (), x, priority=3),
        "push_many of functions": lambda e: e.push_many(
            [(lambda: seen.append("one"), [], [x]), (lambda: seen.append("two"), [x], [])]
        ),
        "push_many of launches": lambda e: e.push_many([prepared, prepared]),
        "a launch": lambda e: add_one[2, 32](x, 64),
        "a prepared launch": lambda e: prepared.push(),
        "a copy": lambda e: cs.copy(host, x),
        "an operator": lambda e: x.__iadd__(1),
        "a launch under `use`": lambda e: _under_use(e, lambda: add_one[2, 32](x, 64)),
    }


def _under_use(engine, call):
    with cs.use(engine):
        return call()


VERBS = [
    "push",
    "push by keywords",
    "push to a device",
    "push with a priority",
    "push_many of functions",
    "push_many of launches",
    "a launch",
    "a prepared launch",
    "a copy",
    "an operator",
    "a launch under `use`",
]


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_recorded_and_runs_with_each_launch(engine, add_one, x, verb):
    seen: list[str] = []
    push = pushes(add_one, x, seen)[verb]
    with cs.graph() as g:
        push(engine)
        recorded = len(g)
        push(cs.engine())
    assert recorded > 0
    assert len(g) == 2 * recorded
    engine.waitall()
    assert not seen
    assert not x.numpy().any()
    exe = g.instantiate()
    exe.launch()
    exe.launch()
    engine.waitall()
    assert len(seen) % 4 == 0
    assert seen or g.nodes[0].device is not None


@pytest.mark.parametrize("verb", [each for each in VERBS if each.startswith("push")])
def test_a_push_onto_another_engine_is_refused_and_runs_nothing(add_one, x, verb):
    seen: list[str] = []
    push = pushes(add_one, x, seen)[verb]
    with cs.Engine() as other, cs.Engine(), cs.graph() as g:
        made_inside = cs.Engine()
        for each in (other, made_inside):
            with pytest.raises(RecordingError, match="of another engine cannot be recorded"):
                push(each)
        assert not g.nodes
    made_inside.close()
    assert not seen
    assert not x.numpy().any()


def test_another_engine_cannot_become_current(engine):
    with cs.Engine() as other, cs.use(engine), cs.graph():
        for use in (lambda: other.__enter__(), lambda: cs.use(other).__enter__()):
            with pytest.raises(RecordingError):
                use()
        assert cs.engine().mode == "recording"


@pytest.mark.parametrize(
    "ask", ["waitall", "statistics", "replay_report", "trace", "clear_errors", "close", "__enter__"]
)
def test_what_asks_an_engine_is_refused(engine, ask):
    with cs.graph(), pytest.raises(RecordingError):
        getattr(engine, ask)()
    assert not engine.is_closed


def test_every_public_verb_of_an_engine_is_recorded_or_refused():
    verbs = {
        name
        for name, each in vars(Engine).items()
        if callable(each) and (not name.startswith("_") or name == "__enter__")
    }
    assert verbs <= set(vars(RecordedEngine))


def test_code_outside_of_the_recording_runs_at_once(engine):
    """Another thread, while this one records."""
    seen: list[object] = []

    def other():
        op = engine.push(lambda: seen.append(1))
        op.wait()
        engine.push_many([(lambda: seen.append(2), [], [])]).wait()
        seen.append(op.push_site)

    with cs.graph() as g:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen[:2] == [1, 2]
    assert __file__ in str(seen[2])
    assert not g.nodes


def test_what_the_library_pushes_for_itself_is_not_recorded(engine, x):
    """The items of an input pipeline, and the end of borrowed memory."""
    items = iter(cs.data.source(range(8)).map(lambda item: item + 1, workers=2).batch(2))
    next(items)
    borrowed = cs.from_dlpack(np.arange(4, dtype=np.float32))
    with cs.graph() as g:
        del borrowed
        y = x + 1
        batch = next(items)
    assert np.asarray(batch).tolist() == [3, 4]
    assert [node.name for node in g.nodes] == [g.nodes[0].name]
    g.instantiate().launch()
    assert y.numpy().tolist() == [1] * 64


def test_the_memory_of_another_serial_engine_is_freed_inside_of_a_recording(x):
    with cs.Engine("serial"):
        theirs = cs.zeros(64)
        with cs.Engine("serial"), cs.graph() as g:
            del theirs
            y = x + cs.empty(64)
        g.instantiate().launch().wait()
        assert y.shape == (64,)


def test_engines_have_their_own_class_once_nothing_is_recorded(engine):
    with cs.graph():
        with pytest.raises(KeyError), cs.graph():
            raise KeyError
        assert type(engine) is RecordedEngine
    assert type(engine) is Engine
