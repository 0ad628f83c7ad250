"""A push inside an op goes to the op's own engine, whichever thread runs or issues the op."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.concurrency.thread_crew import PATIENCE_S, Crew, engine_of, held_by

import cudasync as cs
from cudasync import xp
from cudasync.testing import Latch

KINDS = {
    "async": {},
    "serial": {"mode": "serial"},
    "traced": {"trace": True},
    "limited": {"max_in_flight": 3},
    "one worker": {"workers": 1},
}


@pytest.fixture(params=list(KINDS))
def options(request):
    return KINDS[request.param]


def made_and_used() -> list[int]:
    x = cs.array(np.arange(8))
    y = x + 1
    cs.copy(x, y * 2)
    return [*x.numpy().tolist(), int(xp.sum(y))]


USED = [2, 4, 6, 8, 10, 12, 14, 16, 36]


def test_an_op_makes_arrays_uses_them_and_reads_them_on_any_engine(options):
    with engine_of(**options) as engine:
        assert engine.push(made_and_used).result(PATIENCE_S) == USED
        # The pushes are nested twice, beside earlier ops.
        x = cs.Var("x")
        ops = [
            engine.push(lambda: engine.push(made_and_used).result(PATIENCE_S), [x], [x])
            for _ in range(3)
        ]
        assert [op.result(PATIENCE_S) for op in ops] == [USED] * 3


def test_an_array_made_in_an_op_goes_on_to_whoever_takes_its_result(options):
    with engine_of(**options) as engine:
        x = engine.push(lambda: xp.full(8, 3, dtype=np.int32)).result(PATIENCE_S)
        assert (x + 1).numpy().tolist() == [4] * 8


def test_an_op_of_a_stream_makes_arrays_on_any_engine(options):
    with engine_of(**options) as engine:
        op = engine.push(lambda stream: xp.full(8, 3, dtype=np.int32), device=0)
        assert op.result(PATIENCE_S).numpy().tolist() == [3] * 8


def test_an_allocation_is_not_behind_what_the_op_that_asks_has_enqueued(options):
    with engine_of(**options) as engine, Latch() as latch:

        def ask(stream: cs.Stream) -> cs.Array:
            latch.hold(stream)
            made = cs.empty(8, np.int32, device=0)
            latch.release()
            return made

        assert engine.push(ask, device=0).result(PATIENCE_S).shape == (8,)


def test_memory_that_is_not_to_be_had_is_told_to_the_op_that_asked(options):
    with engine_of(**options) as engine:

        def ask() -> str:
            with pytest.raises(cs.CudaError) as told:
                cs.empty(1 << 50, np.uint8, device=0)
            return told.value.name

        assert engine.push(ask).result(PATIENCE_S) == "CUDA_ERROR_OUT_OF_MEMORY"


def in_its_push(engine, push):
    return push()


def behind_a_host_op(engine, push):
    gate, x = threading.Event(), cs.Var("x")
    if engine.mode == "serial":
        # The serial engine has no waiting ops.
        gate.set()
    engine.push(held_by(gate), writes=[x])
    op = push(reads=[x])
    gate.set()
    return op


def in_a_thread_outside_of_any_block(engine, push):
    found = []
    with Crew() as crew:
        crew.start(lambda: found.append(push()))
    return found[0]


def in_another_engines_op(engine, push):
    with engine_of(workers=1) as other:
        return other.push(push).result(PATIENCE_S)


WHERE = [in_its_push, behind_a_host_op, in_a_thread_outside_of_any_block, in_another_engines_op]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("way", ["push", "priority", "push_many"])
def test_the_function_of_a_device_op_has_its_own_engine_for_the_current_one(options, where, way):
    def seen(stream: cs.Stream) -> tuple[cs.Engine, cs.Op]:
        return cs.engine(), cs.engine().push(cs.engine)

    with engine_of(**options) as mine, engine_of() as other:

        def push(reads=()):
            if way == "push_many":
                return mine.push_many([(seen, reads, (), 0)])
            return mine.push(seen, reads, device=0, priority=int(way == "priority"))

        found = where(mine, push).result(PATIENCE_S)
        current, nested = found[0] if way == "push_many" else found
        assert current is mine
        assert nested.result(PATIENCE_S) is mine
        assert cs.engine() is other, "as it was"


def test_a_function_that_fails_leaves_the_pushers_engine_as_it_was(options):
    def fail(stream: cs.Stream) -> None:
        raise ValueError("planned")

    with engine_of(**options) as mine, engine_of() as other:
        op = mine.push(fail, device=0)
        assert cs.engine() is other
        assert op.exception(PATIENCE_S) is not None
        mine.clear_errors()
