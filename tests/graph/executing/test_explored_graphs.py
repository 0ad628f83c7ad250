"""Small graphs give the serial answer in every order that the device may choose."""

from __future__ import annotations

from itertools import count
from weakref import WeakValueDictionary

import numpy as np
import pytest
from helpers.graphs.placed_programs import placed_by

import cudasync as cs
from cudasync import xp
from cudasync.graph import executable_sharing
from cudasync.graph.transfers import Transfer
from cudasync.testing import explore

FORWARDS = executable_sharing.device_graph
REGIONS = Transfer.regions.fget


def diamond() -> None:
    """Two steps need one step, and one step needs both; recorded, and launched twice."""
    with cs.Engine("serial") as engine, cs.use(engine):
        x, left, right = (cs.DeviceBuffer(4) for _ in range(3))
        out = cs.pinned_empty((2,), np.uint32)

        def fill(buffer, value):
            return lambda stream: cs.memset_async(buffer, value, stream=stream)

        def copy(target, source):
            return lambda stream: cs.memcpy_async(target, source, stream=stream)

        push = cs.engine
        with cs.graph() as g:
            a, b, c = cs.Var("x"), cs.Var("left"), cs.Var("right")
            push().push(fill(x, 7), writes=a, device=0)
            push().push(copy(left, x), reads=a, writes=b, device=0)
            push().push(copy(right, x), reads=a, writes=c, device=0)
            push().push(fill(x, 9), reads=(b, c), writes=a, device=0)
            push().push(copy(out[:1], left), reads=b, device=0)
            push().push(copy(out[1:], right), reads=c, device=0)
        executable = g.instantiate()
        for _ in range(2):
            out[:] = 0
            executable.launch().wait()
            engine.waitall()
            assert (out == 0x07070707).all()
        executable.close()


STARTS = count(1)


def operators() -> None:
    """Temporaries that share memory, used beside each other. The numbers are others each time:
    memory that is used again may have those of the last time."""
    start = next(STARTS)
    with cs.Engine("serial") as engine, cs.use(engine):
        x = cs.array(np.arange(4) + start)
        with cs.graph() as g:
            both = xp.cumulative_sum(x) + xp.cumulative_sum(x * 2)
            last = xp.cumulative_sum(xp.cumulative_sum(both))
            del both
        with g.instantiate() as executable:
            for _ in range(2):
                executable.launch()
        wanted = np.cumsum(np.cumsum(3 * np.cumsum(np.arange(4) + start)))
        assert last.numpy().tolist() == wanted.tolist()


def blocks() -> None:
    """A loop of the driver between two kernels, all on one array."""
    with cs.Engine("serial") as engine, cs.use(engine):
        x, left = cs.array([1, 2]), cs.array([2])
        with cs.graph() as g:
            x += 1
            with g.while_loop(left):
                x *= 3
                left -= 1
            x += 1
        with g.instantiate() as executable:
            executable.launch()
            executable.launch()
        assert x.numpy().tolist() == [21, 30]


def on_two_devices() -> None:
    """Steps that alternate between two devices, with the moves between them."""
    turns = count()
    with cs.Engine("serial") as engine, cs.use(engine):
        x = cs.array(np.arange(4))
        with cs.graph() as g:
            one, other = x.to_device(cs.ANY) + 1, x.to_device(cs.ANY) * 2
            cs.copy(x, xp.cumulative_sum(one) + xp.cumulative_sum(other))
            del one, other
        with (
            placed_by(lambda places: places[:2][next(turns) % min(2, len(places))]),
            g.instantiate() as executable,
        ):
            assert len({node.device for node in executable.nodes}) == min(2, cs.device_count())
            for _ in range(2):
                executable.launch()
        wanted = np.arange(4)
        for _ in range(2):
            wanted = np.cumsum(wanted + 1) + np.cumsum(wanted * 2)
        assert x.numpy().tolist() == wanted.tolist()


def without_the_last(nodes, edges, *rest):
    """The planted bug: the last node with several predecessors keeps only the first of them."""
    last = max(index for index, before in enumerate(edges) if len(before) > 1)
    fewer = [tuple(e)[: 1 if i == last else None] for i, e in enumerate(edges)]
    return FORWARDS(nodes, fewer, *rest)


@pytest.mark.parametrize("program", [diamond, operators, blocks, on_two_devices])
def test_a_graph_gives_one_answer_in_every_order(program):
    found = explore(program)
    assert found.orders >= 1
    assert found.is_complete, found.why


@pytest.mark.parametrize("program", [diamond, operators])
def test_an_edge_that_is_missing_is_found_where_the_usual_order_lets_it_pass(program, monkeypatch):
    monkeypatch.setattr(executable_sharing, "device_graph", without_the_last)
    # Results may have the memory of an earlier test, whose executable may be alive.
    monkeypatch.setattr(executable_sharing, "_KNOWN", WeakValueDictionary())
    program()
    with pytest.raises(AssertionError):
        explore(program)


@pytest.mark.skipif(cs.device_count() < 2, reason="no second device")
def test_a_move_that_nothing_waits_for_is_found(monkeypatch):
    """The planted bug: a move between devices does not declare that it reads its source."""

    def reads_nothing(transfer):
        only_read, updated, written = REGIONS(transfer)
        return (() if transfer.source[1] is not transfer.target[1] else only_read), updated, written

    monkeypatch.setattr(Transfer, "regions", property(reads_nothing))
    with pytest.raises(AssertionError):
        explore(on_two_devices)
