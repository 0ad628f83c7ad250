"""Host functions in a graph: which of them failed, and what a launch of many costs."""

from __future__ import annotations

import itertools
import sys
import threading
from functools import partial

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S, Freezer, end_tracing, is_library
from helpers.concurrency.thread_crew import held_by

import cudasync as cs
from cudasync.engine import waiters
from cudasync.engine.hazards.variable import counted_together
from cudasync.engine.host import repeated_ops as resolving
from cudasync.engine.host.repeated_ops import Resolved
from cudasync.engine.log import histories
from cudasync.graph.parts import call_loop
from cudasync.graph.parts.call_loop import AT_ONCE, Calls

# Our bytecodes for a launch and its wait, in the thread that does both. Measured on Python 3.11. It
# was 2 500 when the waiter planned ops that a worker runs without a plan.
MOST_BYTECODES = 700
# Less than a round, whole rounds, and rounds with a remainder.
COUNTS = (1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 2 * AT_ONCE + 3)


def recorded(functions, tokens=()):
    """An executable of these functions. Each writes a token, and the tokens alternate."""
    with cs.graph() as g:
        for number, fn in enumerate(functions):
            writes = tokens[number % len(tokens)] if tokens else ()
            cs.engine().push(fn, writes=writes, name=f"f{number}")
    return g.instantiate(without=("host",))


def fails():
    raise LookupError("as planned")


# The first function has a Python frame, the others have none.
FAILING = {"Python": fails, "C": [].pop, "partial": partial(int, "x")}

entered = []


def around(function, *operands):
    """Enter a scope for each call, or once for many calls."""
    entered.append(None)
    function(*operands)


around.takes_many = True


def itself(function):
    return function


def wrong_places(kind, called_by=itself):
    """The cases in which the wrong function was found to have failed."""
    found = []
    for count in COUNTS:
        for at in {0, count // 2, count - 1}:
            called: list[int] = []
            functions = [partial(called.append, number) for number in range(count)]
            functions[at] = FAILING[kind]
            calls = Calls([called_by(each) for each in functions])
            place = calls.begin()
            try:
                calls.go(*place)
            except Exception as error:
                said = calls.failed_at(*place, error)
                if (said, called) != (at, [*range(at)]):
                    found.append((count, at, said))
            else:
                found.append((count, at, None))
    return found


@pytest.mark.parametrize("kind", FAILING)
def test_the_function_that_failed_is_found_wherever_it_stands(kind):
    assert not wrong_places(kind)


@pytest.mark.parametrize("kind", FAILING)
def test_so_it_is_where_one_call_of_another_function_is_around_all(kind):
    assert not wrong_places(kind, lambda function: partial(around, function))


def test_what_takes_many_is_entered_once_if_it_is_around_all():
    seen = []
    inside = [partial(around, seen.append, number) for number in range(2 * AT_ONCE + 3)]
    for functions, times in ((inside, 1), ([*inside, lambda: None], len(inside)), (inside[:1], 1)):
        seen.clear()
        entered.clear()
        calls = Calls(functions)
        calls.go(*calls.begin())
        assert len(entered) == times
        assert seen == [*range(len(seen))] != []


def test_a_function_beside_additions_finds_numpy_as_it_is():
    """The additions silence NumPy's warnings, but not for functions that run between them."""
    seen = []
    x = cs.array(np.ones(4, np.float32), device="cpu")
    with cs.graph() as g:
        for _ in range(2):
            x += x
            cs.engine().push(lambda: seen.append(np.geterr()["over"]), writes=x)
    with cs.Engine(workers=1), g.instantiate() as exe:
        exe.launch().wait(PATIENCE_S)
    assert seen == ["warn"] * 2
    assert x.numpy().tolist() == [4] * 4


def interrupted(function, at, *arguments):
    """Call it; a handler raises KeyboardInterrupt where the function with the code `at` begins."""

    def handle(frame, event, argument):
        if event == "call" and frame.f_code is at:
            raise KeyboardInterrupt

    sys.settrace(handle)
    try:
        function(*arguments)
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("count", [3, AT_ONCE, 2 * AT_ONCE + 3])
def test_what_a_signal_handler_raises_before_any_call_is_no_failure_of_a_function(count):
    """The handler is a function of Python, so its own frame is in the traceback."""
    calls = Calls([lambda: None] * count)
    for at in (Calls._go.__code__, calls._call_rounds.__code__):
        place = calls.begin()
        with pytest.raises(KeyboardInterrupt) as info:
            interrupted(calls.go, at, *place)
        assert calls.failed_at(*place, info.value) is None


def test_a_place_that_is_one_off_is_found(monkeypatch):
    monkeypatch.setattr(call_loop, "_FIRST_LINE", call_loop._FIRST_LINE + 1)
    assert wrong_places("Python")


@pytest.mark.parametrize("at", [3, 2 * AT_ONCE + 1])
def test_a_failure_begins_in_its_function_and_names_its_node(at):
    functions = [lambda: None] * (2 * AT_ONCE + 3)
    functions[at] = fails
    with cs.Engine(workers=1) as engine, recorded(functions) as exe:
        said = rf"node {at} \(f{at}\), recorded at {__file__}"
        with pytest.raises(cs.OpError, match=said) as info:
            exe.launch().wait(PATIENCE_S)
        trace = info.value.__cause__.__traceback__
        frames = []
        while trace is not None:
            frames.append(trace.tb_frame.f_code)
            trace = trace.tb_next
        assert frames[-1] is fails.__code__
        assert not any(code.co_filename.startswith("<") for code in frames)
        engine.clear_errors()


def test_each_launch_counts_as_a_write_of_each_token():
    one, other, read = cs.Var("one"), cs.Var("other"), cs.Var("read")
    with cs.Engine(workers=1), cs.graph() as g:
        push = cs.engine().push
        push(lambda: None, reads=read, writes=one)
        push(lambda: None, reads=one, writes=(one, other))
    with cs.Engine(workers=1), g.instantiate() as exe:
        for count in range(1, 4):
            exe.launch()
            assert (one.version, other.version, read.version) == (count, count, 0)


def costs(functions, tokens):
    """Our bytecodes for a launch and its wait, repeatedly."""
    with recorded(functions, tokens) as exe:
        for _ in range(200):
            freezer = Freezer(None, is_library)
            with freezer:
                exe.launch().wait(PATIENCE_S)
            end_tracing()
            yield freezer.points


def test_a_launch_costs_the_same_whatever_it_calls_and_writes(monkeypatch):
    # A waiter looks around after each nap, so a slow worker would cost it bytecodes.
    monkeypatch.setattr(waiters, "FIRST_NAP_S", PATIENCE_S)
    with cs.Engine(workers=1):
        most = 1.1 * min(itertools.islice(costs([lambda: None] * 3, [cs.Var("a")]), 9))
        if sys.version_info[:2] == (3, 11):
            most = min(most, MOST_BYTECODES)
        tokens = [cs.Var(str(number)) for number in range(1000)]
        assert any(points <= most for points in costs([lambda: None] * 3000, tokens))


def test_tokens_that_were_in_use_are_forgotten_by_a_later_launch():
    """A launch that had to be planned leaves histories, and later launches would look through them.

    A launch during the worker's change to its next op has to be planned, too.
    """
    tokens = [cs.Var(str(number)) for number in range(3)]
    with cs.Engine(workers=1) as engine, recorded([lambda: None] * 3, tokens) as exe:
        gate, begun = threading.Event(), threading.Event()
        engine.push(held_by(gate, begun))
        assert begun.wait(PATIENCE_S)
        first, second = exe.launch(), exe.launch()
        # The statistics plan all pushed ops.
        engine.statistics()
        gate.set()
        for op in (first, second):
            op.wait(PATIENCE_S)
        assert any(each._histories for each in tokens)
        assert any(_forgets(exe, tokens) for _ in range(100))


def _forgets(exe, tokens):
    exe.launch().wait(PATIENCE_S)
    return not any(each._histories for each in tokens)


COUNTER = """
__device__ int counter;
extern "C" __global__ void count(int *out) { out[0] = ++counter; }
"""


def test_a_prepared_launch_is_ordered_by_a_variable_that_was_forgotten_at_rest():
    module = cs.Module.from_cuda(COUNTER)
    out = cs.zeros(1, np.int32)
    with cs.Engine(workers=1) as engine:
        launch = module.kernel("count").prepare(grid=1, block=1, args=[out])
        ops: list[cs.Op] = []
        known: list[bool] = []

        def look() -> None:
            known.append(all(op.done() for op in ops))

        exe = recorded([look], [module.variable("counter")])
        for _ in range(3):
            ops.append(launch.push())
            engine.waitall()
            # This launch runs alone, so no later history of the variable remains.
            exe.launch().wait(PATIENCE_S)
            # On the software GPU this launch has not run at the next push, because no thread waits.
            ops.append(launch.push())
            exe.launch().wait(PATIENCE_S)
        assert known == [True] * 6
    exe.close()
    module.close()


def test_a_history_of_an_epoch_before_the_one_at_rest_does_not_count():
    variable = cs.Var("v")
    with cs.Engine(workers=1) as engine:
        failed = engine.push(fails, writes=variable)
        assert failed.exception(PATIENCE_S)
        old = histories.latest(variable._histories)
        engine.push(list, writes=variable).wait(PATIENCE_S)
        epoch = old.epoch + 1
        assert histories.history_of(variable, epoch).rest()
        histories.let_rest(variable, epoch)
        # A combiner that was superseded long ago stores such an entry.
        variable._histories[old.epoch] = old
        assert histories.history_of(variable, epoch + 1).writer is None
        engine.clear_errors()


def test_executables_that_write_the_same_tokens_share_their_count():
    tokens = [cs.Var("one"), cs.Var("other")]
    with cs.Engine(workers=1), cs.graph() as g:
        cs.engine().push(lambda: None, writes=tokens)
    before = [len(each._counts) for each in tokens]
    for count in range(1, 4):
        with cs.Engine(workers=1), g.instantiate() as exe:
            exe.launch()
            assert [each.version for each in tokens] == [count, count]
    assert [len(each._counts) - b for each, b in zip(tokens, before, strict=True)] == [2, 1]


def test_a_count_is_no_longer_shared_with_a_token_that_is_gone():
    kept = cs.Var("kept")
    gone = cs.Var("gone")
    counted_together((kept, gone)).next()
    # The entry remains as if the next variable had the dead variable's id.
    stale = kept._counts.pop((id(kept), id(gone)))
    fresh = cs.Var("fresh")
    kept._counts[id(kept), id(fresh)] = stale
    counted_together((kept, fresh)).next()
    assert (kept.version, fresh.version) == (2, 1)


def test_an_overtaken_combiner_that_looks_meanwhile_hides_no_history(monkeypatch):
    variable = cs.Var("v")
    resolved = Resolved(((((), (), ())), (variable,), ()))

    class Watched:
        """Another thread looks whenever a history was made."""

        _latest = object()

        @property
        def latest(self):
            return self._latest

        @latest.setter
        def latest(self, made):
            self._latest = made
            resolved.has_histories()

    monkeypatch.setattr(histories, "MADE", Watched())
    monkeypatch.setattr(resolving, "MADE", histories.MADE)
    assert not resolved.has_histories()
    histories.history_of(variable, 1)
    assert resolved.has_histories()
