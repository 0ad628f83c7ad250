"""Small graphs give the serial answer in every order that the device may choose."""

from __future__ import annotations

import numpy as np
import pytest

import cudasync as cs
from cudasync.graph import sharing
from cudasync.testing import explore

FORWARDS = sharing.device_graph


def diamond() -> None:
    """Two that need one, and one that needs both; recorded, and launched twice."""
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


def without_the_last(nodes, edges, *rest):
    """Planted: the last node that comes after several comes after the first of them alone."""
    last = max(index for index, before in enumerate(edges) if len(before) > 1)
    fewer = [tuple(e)[: 1 if i == last else None] for i, e in enumerate(edges)]
    return FORWARDS(nodes, fewer, *rest)


def test_a_graph_gives_one_answer_in_every_order():
    found = explore(diamond)
    assert found.orders >= 1
    assert found.is_complete, found.why


def test_an_edge_that_is_missing_is_found_where_the_usual_order_lets_it_pass(monkeypatch):
    monkeypatch.setattr(sharing, "device_graph", without_the_last)
    diamond()
    with pytest.raises(AssertionError):
        explore(diamond)
