"""`check` finds Python that touches NumPy memory too early, and finds nothing else."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
from helpers.concurrency.bytecode_freezer import PATIENCE_S
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.engine.op import OpKind
from cudasync.testing import check, host_races

N = 8


@pytest.fixture(autouse=True)
def ops_begin_when_their_pusher_waits(monkeypatch):
    """However busy the machine is, a touch right behind the push comes first."""
    monkeypatch.setattr(host_races, "_DELAY_S", PATIENCE_S)


@pytest.fixture
def engine():
    with cs.Engine(workers=2) as engine:
        yield engine


def sites_of(program):
    """The names of the ops that the findings of a program name, in order."""
    found = check(program, kinds=["race"])
    assert {each.kind for each in found} <= {"race"}
    assert all(__file__ in side.site for each in found for side in each.accesses)
    return [each.accesses[1].what.split("'")[1] for each in found]


def copied(y):
    x = cs.array(np.arange(N, dtype=np.float32))
    return cs.copy(y, x, name="write")


def computed(y):
    return cs.engine().push(lambda: y.fill(1), writes=[y], name="write")


WAYS = {"a copy": copied, "a host op": computed}
TOUCHES = {
    "an element": lambda y: y[0],
    "a sum": lambda y: y.sum(),
    "a text": str,
    "a copy of the bytes": bytes,
    "a write": lambda y: y.fill(0),
    "the last element of a view": lambda y: y[1:][-1],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_touch_behind_the_push_is_found(engine, way):
    def program():
        y = np.zeros(N, np.float32)
        op = way(y)
        y.sum()
        op.wait()

    assert sites_of(program) == ["write"]


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES)
def test_every_kind_of_touch_is_found(engine, touch):
    def program():
        y = np.zeros(N, np.float32)
        op = copied(y)
        touch(y)
        op.wait()

    assert sites_of(program) == ["write"]


def test_a_finding_names_both_lines_and_says_what_to_do(engine):
    def program():
        y = np.empty((100, 100), np.float32)
        cs.copy(y, cs.zeros(y.shape, y.dtype))
        print(y)
        engine.waitall()

    (found,) = check(program, kinds=["race"])
    line = program.__code__.co_firstlineno
    touch, write = found.accesses
    assert (touch.site, write.site) == (f"{__file__}:{line + 3}", f"{__file__}:{line + 2}")
    assert "cs.copy(array, x).wait()" in found.missing


def test_a_touch_on_another_thread_is_found(engine):
    def program():
        y = np.zeros(N, np.float32)
        op = copied(y)
        thread = threading.Thread(target=y.sum)
        thread.start()
        thread.join()
        op.wait()

    (found,) = check(program, kinds=["race"])
    assert "threading.py" in found.accesses[0].site


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_program_that_waits_is_not_told_of(engine, way):
    def program():
        y = np.zeros(N, np.float32)
        way(y).wait()
        y.sum()
        way(y)
        engine.waitall()
        y[:] = 2
        x = cs.array(y)
        way(y)
        assert x.numpy(out=y).tolist() == [2] * N

    assert sites_of(program) == []


def test_ops_that_access_what_an_earlier_op_writes_are_not_told_of(engine):
    def program():
        y, sums = np.zeros(N, np.float32), []
        copied(y)
        engine.push(lambda: sums.append(y.sum()), reads=[y])
        engine.push(lambda: y.__imul__(2), reads=[y], writes=[y])
        engine.waitall()
        assert (sums, y[3]) == ([28], 6)

    assert sites_of(program) == []


def test_neighbours_and_the_gaps_of_a_view_are_not_told_of(engine):
    def program():
        y = np.zeros(3 * N, np.float32)
        op = engine.push(lambda: y[N : 2 * N].fill(1), writes=[y[N : 2 * N]], name="write")
        y[:N] = 1
        y[2 * N :].sum()
        op.wait()
        op = engine.push(lambda: y[::2].fill(1), writes=[y[::2]], name="write")
        y[1::2] = 1
        op.wait()

    assert sites_of(program) == []


def fail():
    raise ValueError("planned")


def after_a_failure(engine):
    """A program that handles the failure of an op that never began, and reads its target."""
    y, v = np.zeros(N, np.float32), cs.Var()
    engine.push(fail, writes=[v])
    op = engine.push(lambda: y.fill(1), reads=[v], writes=[y], name="write")
    with suppress(cs.OpError):
        op.wait()
    y.sum()
    engine.clear_errors()


def test_an_op_that_never_began_is_over_too(engine):
    assert sites_of(lambda: after_a_failure(engine)) == []


def test_an_op_that_is_thought_unfinished_for_ever_is_found(engine, monkeypatch):
    monkeypatch.setattr(host_races._Write, "is_over", False)
    monkeypatch.setattr(host_races.HostRaces, "_open", lambda *_: None)
    assert sites_of(lambda: after_a_failure(engine)) == ["write"]


def test_memory_can_be_given_to_the_system_after_the_wait(engine, tmp_path):
    """A system call fails in a guarded page, so none is left guarded."""

    def program():
        y = np.zeros(N, np.float32)
        copied(y).wait()
        y.tofile(tmp_path / "y")
        (tmp_path / "z").write_bytes(y)

    assert sites_of(program) == []
    assert np.fromfile(tmp_path / "y", np.float32).tolist() == list(range(N))


def test_a_push_that_is_refused_leaves_nothing_guarded(engine):
    def program():
        y = np.zeros(N, np.float32)
        with pytest.raises(TypeError):
            engine.push(lambda: None, reads=[object()], writes=[y])
        y.sum()

    assert sites_of(program) == []


def test_a_check_leaves_nothing_behind():
    before = host_races.general_push.push
    y = np.zeros(N, np.float32)
    name = (sys.modules.get("numpy._core.multiarray") or np.core.multiarray).get_handler_name
    check(lambda: name(np.zeros(3)) == "cudasync_pages" or 1 / 0, kinds=["race"])
    assert host_races.general_push.push is before
    assert name(np.zeros(3)) == name(y)
    assert check(lambda: np.zeros(3) is None, kinds=["mem"]) == []


# Steps of random programs: an op that writes an array, a touch of one, a wait for the last op of
# one, a wait for all.
steps = st.lists(
    st.tuples(st.sampled_from(["write", "copy", "touch", "wait", "waitall"]), st.integers(0, 2)),
    max_size=12,
)


def found_and_right(program, *, planted=None):
    """What a check finds in a program, what it must find, and what it may find.

    After a wait, any op may have begun, so a touch is a race that need not show.
    """
    must, may = [], []

    def run():
        with cs.Engine(workers=2) as engine:
            arrays = [np.zeros(N, np.float32) for _ in range(3)]
            x = cs.array(np.arange(N, dtype=np.float32))
            engine.waitall()
            ops, guarded = {}, {}
            for at, (verb, k) in enumerate(program):
                y = arrays[k]
                name = f"op {at}"
                if verb == "write":
                    ops[k] = engine.push(lambda y=y, at=at: y.fill(at), writes=[y], name=name)
                    guarded[k] = [*guarded.get(k, ()), name]
                elif verb == "copy":
                    ops[k] = cs.copy(y, x, name=name)
                    guarded[k] = [*guarded.get(k, ()), name]
                elif verb == "touch":
                    y.sum()
                    if k in ops:
                        may.extend(guarded.get(k, ()))
                    # A touch opens the memory for all ops.
                    must.extend(each for each in guarded.pop(k, ()) if each not in unsure)
                else:
                    if verb == "waitall":
                        engine.waitall(PATIENCE_S)
                        ops, guarded = {}, {}
                    elif k in ops:
                        ops.pop(k).wait(PATIENCE_S)
                        guarded.pop(k, None)
                    unsure.update(each for names in guarded.values() for each in names)
            engine.waitall(PATIENCE_S)

    unsure: set[str] = set()
    return sites_of(run), must, may


@given(steps)
def test_findings_are_races_and_include_each_that_must_show(program):
    found, must, may = found_and_right(program)
    assert set(must) <= set(found) <= set(may)


def test_a_guard_that_closes_nothing_is_found(monkeypatch):
    monkeypatch.setattr(host_races.Guards, "close", lambda self, array: None)
    monkeypatch.setattr(host_races.HostRaces, "_open", lambda *_: None)
    found, must, _ = found_and_right([("copy", 0), ("touch", 0)])
    assert must == ["op 0"]
    assert not found


def test_the_engines_other_ops_take_the_usual_way(engine):
    """Ops without memory of NumPy are pushed as ever."""
    kinds = []

    def program():
        x = cs.zeros(N, np.float32)
        x += 1
        kinds.append(engine.push(lambda: None, writes=[x]).kind)
        assert x.numpy()[0] == 1

    assert sites_of(program) == []
    assert kinds == [OpKind.HOST]
