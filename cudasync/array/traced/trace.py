"""Floor 4, traced functions. A trace: the graph of one signature, and its results.

Results are arguments of the graph, too: each launch writes them to new arrays. If the function
returns its arguments, or views of them, the results are the call's arguments or views of these.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.array.array import Array
from cudasync.array.creation import empty_like
from cudasync.array.elementwise.operation import COPY
from cudasync.array.elementwise.plan import user_frame
from cudasync.array.guards.tracing import Watch
from cudasync.array.traced.trees import mapped
from cudasync.graph import graph
from cudasync.graph.arguments import Argument
from cudasync.graph.retargeting import touches

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Sequence
    from types import FrameType

    from cudasync.array.guards.outside import Outside
    from cudasync.array.traced.signature import Signature
    from cudasync.graph.node import Node


class _Given(NamedTuple):
    """A result that is an argument, or a view of one: its index, and its place in it."""

    argument: int
    view: Array


class _Made(NamedTuple):
    """A result that each launch makes: its index among these."""

    number: int


class Trace:
    """One recording of a function. Any number of threads may launch it at once."""

    def __init__(
        self,
        function: Callable[..., Any],
        bound: inspect.BoundArguments,
        signature: Signature,
        outside: Outside,
        name: str,
    ) -> None:
        # Each new trace looks at all that its function can reach, and `outside` keeps it alive.
        self._outside = outside
        self._made: list[Array] = []
        self._by_id: dict[int, Any] = {}
        with graph() as recorded:
            self._slots = [
                recorded.argument(f"argument {at}", each)
                for at, each in enumerate(signature.arrays)
            ]
            known = {id(a): s for a, s in zip(signature.arrays, self._slots, strict=True)}

            def slot(leaf: Any) -> Any:
                return known.get(id(leaf), leaf)

            arguments = {name: mapped(slot, each) for name, each in bound.arguments.items()}
            again = type(bound)(bound.signature, arguments)
            with Watch(outside, name):
                returned = function(*again.args, **again.kwargs)
            self._results = mapped(self._result, returned)
            del returned
        self._by_id.clear()
        outside.settle(partial(_is_used, recorded.nodes))
        # The results of the first launch, with which the graph is instantiated. That launch takes
        # them.
        self._first = [[empty_like(each) for each in self._made]]
        for at, each in enumerate(self._made):
            name = f"result {at}"
            recorded._arguments[name] = Argument(name, each, self._first[0][at])
        self.executable = recorded.instantiate()

    def launch(self, arrays: Sequence[Array], frame: FrameType) -> Any:
        """Push a launch with these arrays; returns the results. Raises ValueError, with nothing
        pushed, if the arrays cannot be arguments together."""
        try:
            made = self._first.pop()
        except IndexError:
            made = [empty_like(each) for each in self._made]
        values = {f"argument {at}": each for at, each in enumerate(arrays)}
        values.update({f"result {at}": each for at, each in enumerate(made)})
        self.executable.launch_on(values, frame)

        def result(leaf: Any) -> Any:
            if isinstance(leaf, _Made):
                return made[leaf.number]
            if isinstance(leaf, _Given):
                return self._given(leaf, arrays[leaf.argument])
            return leaf

        return mapped(result, self._results)

    def _given(self, given: _Given, array: Array) -> Array:
        slot, view = self._slots[given.argument], given.view
        if view is slot:
            return array
        ptr = array.ptr + view.ptr - slot.ptr
        return type(array)(array._allocation, ptr, view.shape, view.strides, view.dtype)

    def _result(self, leaf: Any) -> Any:
        if not isinstance(leaf, Array):
            return leaf
        found = self._by_id.get(id(leaf))
        if found is None:
            # With the leaf itself, so that no other object gets its id meanwhile.
            found = self._by_id[id(leaf)] = self._new_result(leaf), leaf
        return found[0]

    def _new_result(self, array: Array) -> Any:
        for at, slot in enumerate(self._slots):
            if array._allocation is slot._allocation:
                return _Given(at, array)
        for thing in self._outside.arrays:
            if array._allocation is thing._allocation:
                return array
        # The copy is a kernel of its own, or fused into the array's producer: both can be aimed.
        self._made.append(COPY((array,), user_frame()))
        return _Made(len(self._made) - 1)


def _is_used(nodes: Sequence[Node], start: int, end: int) -> bool:
    """True if a node touches these bytes."""
    return any(touches(node, (start, end)) for node in nodes)
