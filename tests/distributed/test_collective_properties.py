"""Programs with collectives between ops give the serial answer, recorded or not."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from helpers.distributed.collective_programs import (
    expected,
    extremes,
    place,
    programs,
    raise_unless_extreme,
    raise_unless_same,
    results,
    run,
)
from hypothesis import Phase, example, find, given, note, settings
from hypothesis import strategies as st

import cudasync as cs
from cudasync.array.host.memory import view_of
from cudasync.distributed import local, reductions, steps
from cudasync.testing import HostLatch

SIZES = st.sampled_from([3, 2, 1])
ALL = [
    (kind, a, b, value)
    for a, b in ((0, 1), (1, 2))
    for kind, value in (("all_reduce", "sum"), ("scale", 3), ("parts", "max"), ("send", 1))
]


def communicator(size, *, on_cpu=False):
    count = cs.device_count()
    return cs.distributed.init(
        "local", devices=["cpu"] * size if on_cpu else [r % count for r in range(size)]
    )


def play(program, size, *, mode="async", on_cpu=False, recorded=False):
    comm = communicator(size, on_cpu=on_cpu)
    with cs.Engine(mode):
        rows = place(program, comm)
        if recorded:
            with cs.graph() as graph:
                run(program, comm, rows)
            graph.instantiate().launch().wait()
        else:
            run(program, comm, rows)
        return results(rows)


@given(programs(), SIZES, st.booleans())
@example((18000, ALL), 3, False)
def test_any_program_gives_what_numpy_gives(program, size, on_cpu):
    note(program)
    raise_unless_same(play(program, size, on_cpu=on_cpu), expected(program, size))


@given(programs(5), SIZES)
def test_the_serial_engine_gives_it_too(program, size):
    raise_unless_same(play(program, size, mode="serial"), expected(program, size))


@given(programs(5), SIZES)
@example((18000, ALL), 3)
@example((12, ALL), 2)
def test_a_recorded_program_gives_it_too(program, size):
    raise_unless_same(play(program, size, recorded=True), expected(program, size))


@given(extremes(), SIZES, st.booleans())
def test_any_min_and_max_give_what_numpy_gives(drawn, size, on_cpu):
    raise_unless_extreme(drawn, communicator(size, on_cpu=on_cpu))


def test_a_min_that_loses_nan_is_found(monkeypatch):
    drawn = "all_reduce", "min", "float32", 7, [(0, 1), (1, 3), (2, 7)]
    raise_unless_extreme(drawn, communicator(3, on_cpu=True))
    plain = reductions.combine

    def loses(op, x, y, out):
        plain(op, cs.xp.where(x != x, y, x), cs.xp.where(y != y, x, y), out)

    monkeypatch.setattr(steps, "combine", loses)
    with pytest.raises(AssertionError):
        raise_unless_extreme(drawn, communicator(3, on_cpu=True))


def test_a_recorded_collective_is_repeated_with_what_its_arrays_hold():
    comm = communicator(2)
    x = comm.each(lambda rank, device: cs.array([1.0, 2.0], device=device))
    with cs.graph() as graph:
        work = comm.all_reduce(x)
    with pytest.raises(cs.RecordingError, match="launch of its graph"):
        work.wait()
    executable = graph.instantiate()
    for _ in range(3):
        executable.launch()
    assert [each.numpy().tolist() for each in x] == [[8, 16], [8, 16]]


def _a_step_is_dropped(planted):
    step = steps.Partial.step
    planted.setattr(
        steps.Partial,
        "step",
        lambda self, number: None if number == 1 and len(self.at) > 2 else step(self, number),
    )


def _a_chunk_is_wrong(planted):
    chunks = local.chunks
    planted.setattr(local, "chunks", lambda flat, n: [flat[:1], *chunks(flat, n)[1:]])


def _a_tree_forgets_its_last(planted):
    broadcast = local.tree_broadcast
    planted.setattr(
        local,
        "tree_broadcast",
        lambda at, *rest: broadcast(at[:-1] if len(at) > 2 else at, *rest),
    )


PLANTED = [_a_step_is_dropped, _a_chunk_is_wrong, _a_tree_forgets_its_last]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda each: each.__name__.strip("_"))
def test_a_planted_bug_is_found(plant, monkeypatch):
    plant(monkeypatch)

    def goes_wrong(drawn):
        try:
            raise_unless_same(play(drawn, 3), expected(drawn, 3))
        except (AssertionError, cs.CudasyncError):
            return True
        finally:
            with contextlib.suppress(cs.CudasyncError):
                cs.waitall()
        return False

    search = settings(
        max_examples=200, derandomize=True, database=None, phases=[Phase.generate], deadline=None
    )
    find(programs(), goes_wrong, settings=search)


def _behind_a_held_write():
    """The result of a collective that must wait for the op that writes its input."""
    latch = HostLatch()
    comm = communicator(3, on_cpu=True)
    with cs.Engine(workers=3) as engine:
        x, out = (comm.each(lambda rank, device: cs.zeros(4, device=device)) for _ in range(2))

        def write():
            latch.wait()
            view_of(x[1])[...] = 5

        engine.push(write, writes=[x[1]])
        comm.all_reduce(x, out)
        latch.release()
        return [each.numpy().tolist() for each in out]


def test_a_collective_waits_for_what_writes_its_input():
    assert _behind_a_held_write() == [[5] * 4] * 3


def test_a_missing_hazard_is_found(monkeypatch):
    def read_now(target, source, name, priority):
        was = view_of(source).copy()
        cs.engine().push(lambda: np.copyto(view_of(target), was), writes=[target])

    monkeypatch.setattr(steps, "move", read_now)
    assert _behind_a_held_write() != [[5] * 4] * 3
