"""Any graph gives the serial answer under any schedule, and a graph without one edge does not."""

from __future__ import annotations

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.driver.graph_programs import (
    Player,
    dependencies,
    placements,
    programs,
    schedulers,
    serially,
)
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from cudasync.testing import explore

# The examples share the machine and leave nothing behind on it.
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def player(kernels):
    return Player(kernels)


@shared
@given(program=programs, schedule=schedulers, times=st.integers(1, 2))
def test_a_graph_made_by_hand_gives_the_serial_answer(player, program, schedule, times):
    found = player.play(player.by_hand(program), schedule, times)
    assert found == serially(program * times)


@shared
@given(program=programs, placement=placements, schedule=schedulers, times=st.integers(1, 2))
def test_a_captured_graph_gives_the_serial_answer(player, program, placement, schedule, times):
    found = player.play(player.by_capture(program, placement), schedule, times)
    assert found == serially(program * times)


@pytest.mark.lazy
def test_every_order_of_a_graph_is_explored(kernels):
    """A graph without one edge fails in the order that shows the loss."""
    program = [("mix", 0, 1, 2), ("set", 1, 0, 3), ("mix", 2, 1, 1)]

    def launch(drop=None):
        def play():
            ok(driver.cuCtxSetCurrent(kernels.context))
            player = Player(kernels)
            assert player.play(player.by_hand(program, drop), None) == serially(program)
            player.close()

        return play

    assert explore(launch()).is_complete
    with pytest.raises(AssertionError) as caught:
        explore(launch(drop=(0, 1)))
    assert "kernel set" in "".join(caught.value.__notes__)


@pytest.mark.lazy
@pytest.mark.parametrize("way", ["by hand", "by capture"])
def test_a_dropped_edge_is_found(player, way):
    """The planted bug: fifo misses it, and some seed below ten finds it."""

    def is_found(program):
        edges = [(earlier, len(program) - 1) for earlier in dependencies(program)[-1]]
        return any(differs(program, edge, f"seed={seed}") for edge in edges for seed in range(10))

    def differs(program, edge, schedule):
        placement = [index % 2 for index in range(8)]
        graph = (
            player.by_hand(program, drop=edge)
            if way == "by hand"
            else player.by_capture(program, placement, drop=edge)
        )
        return player.play(graph, schedule) != serially(program)

    program = find(programs, is_found, settings=settings(database=None, phases=[Phase.generate]))
    edges = [(earlier, len(program) - 1) for earlier in dependencies(program)[-1]]
    assert not any(differs(program, edge, "fifo") for edge in edges)
