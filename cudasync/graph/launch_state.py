"""Floor 3. State that a graph keeps in memory, and that may be elsewhere before a launch.

A generator of random numbers counts its draws on the host. The draws of a recording are counted in
memory instead, because only a launch knows how many rounds a loop has. So a launch of such a graph
first brings the count to that memory, if it is elsewhere.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from cudasync.graph.retargeting import touches
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.graph.node import Node


class LaunchState(Protocol):
    """One such state. `lock` is held from `bring` until all parts of a launch are pushed."""

    lock: Lock

    def memory(self) -> tuple[int, int]:
        """The bytes in which a graph keeps it: first, and behind the last."""

    def bring(self) -> None:
        """Push what is needed so that later ops find it in its memory."""


_lock = Lock()
# Every state whose memory a recording has named; the nodes keep it alive.
_states: list[ref[Any]] = []


def register(state: LaunchState) -> None:
    """Note a state whose memory a recording is about to name."""
    with _lock:
        _states[:] = [each for each in _states if each() not in (None, state)]
        _states.append(ref(state))


def states_of(nodes: Iterable[Node]) -> tuple[LaunchState, ...]:
    """The states that these nodes use, in one order for all graphs, in which a launch locks
    them."""
    with _lock:
        known = [found for each in _states if (found := each()) is not None]
    if not known:
        return ()
    steps = list(nodes)
    used = [s for s in known if any(touches(node, s.memory()) for node in steps)]
    return tuple(sorted(used, key=id))


def brought(states: Sequence[LaunchState]) -> ExitStack:
    """`with brought(states):` around the pushes of a launch. Other threads neither draw nor launch
    in between."""
    stack = ExitStack()
    with stack:
        for each in states:
            stack.enter_context(each.lock)
            each.bring()
        return stack.pop_all()
