"""A failure inside or before a graph reaches its dependents and nothing else, as in eager work."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from helpers.engine_programs.host_programs import host_programs
from helpers.engine_programs.strategies import settings
from helpers.fuzzing.search import first_difference
from helpers.graphs.recorded_programs import graph_differences
from hypothesis import given

import cudasync as cs
from cudasync.engine import ledger
from cudasync.engine.hazards.damage import Damage


@given(host_programs(), settings())
def test_what_does_not_need_what_failed_runs_and_is_whole(program, setting):
    assert not graph_differences(program, setting, 3, beside=True)


def whole(*_):
    """The planted bug: a failed segment damages all that it writes."""
    return True


def unharmed(*_):
    """The planted bug: nothing in a segment depends on an earlier failure."""
    return Damage()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (ledger, "_reaches", whole),
        (Damage, "before", unharmed),
        (Damage, "heal", lambda *_: None),
        (Damage, "fail", lambda *_: None),
    ],
    ids=["all is poisoned", "nothing was wrong before", "nothing heals", "nothing is harmed"],
)
def test_a_planted_bug_is_found(owner, name, bug, monkeypatch):
    monkeypatch.setattr(owner, name, bug)

    def differences(program, setting):
        return graph_differences(program, setting, 3, beside=True)

    assert first_difference(differences, host_programs(), settings())


def test_half_of_what_a_segment_writes_is_poisoned():
    x, y = cs.zeros(8, np.int32, device="cpu"), cs.zeros(8, np.int32, device="cpu")
    with cs.Engine() as engine:
        with cs.graph() as g:
            push = cs.engine().push
            push(lambda: 1 / 0, writes=x[:4], name="divide")
            push(lambda: None, writes=y)
        op = g.instantiate().launch()
        assert y.numpy().tolist() == x[4:].numpy().tolist() * 2
        with pytest.raises(cs.OpError, match="divide"):
            x.numpy()
        assert isinstance(op.exception(), cs.OpError)
        engine.clear_errors()


def test_what_is_wrong_does_not_grow_with_the_launches():
    """Each launch of a poisoned graph damages the same bytes as the first one."""
    x, y = np.zeros(8, np.int32), np.zeros(8, np.int32)

    def fail():
        raise ValueError("planned")

    with cs.graph() as g:
        for start in range(4):
            cs.engine().push(int, reads=[x[start:], y], writes=[x[start:], y[: start + 2]])
    with cs.Engine(workers=1) as engine, cs.use(engine), g.instantiate() as executable:
        engine.push(fail, writes=[x[1:3], y[5:]])
        ops = [executable.launch() for _ in range(7)]
        with suppress(cs.OpError):
            engine.waitall()
        counts = [len(list(op._damage._bytes)) for op in ops]
        assert max(counts[3:]) <= counts[2] <= 4
        engine.clear_errors()
