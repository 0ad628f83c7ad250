"""Floor 4, traced functions. `@cs.graph_function`: recorded once per signature, launched each time.

Invariant: a call that cannot be a launch of a graph calls the function. So operations that cannot
be traced keep their meaning, and `explain()` reports them.
"""

from __future__ import annotations

import inspect
import sys
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from cudasync.array.guards.outside import Outside
from cudasync.array.guards.tracing import Traces
from cudasync.array.traced.signature import Signature
from cudasync.array.traced.trace import Trace
from cudasync.engine import current

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_getframe = sys._getframe
# The number of signatures that are kept ready, the latest ones.
MOST_SIGNATURES = 64
# The number of reasons that are remembered.
_MOST_REASONS = 100


class GraphFunction:
    """A function that is recorded as a graph for each signature, made by `cs.graph_function`.

    A call returns at once. Its arguments are arrays, and other values that can be hashed, in
    tuples, lists and dicts; results are new arrays each time.

    The function is called once for each signature: the shapes, dtypes and devices of its arrays,
    the identities among them, and the values of all other arguments. So its side effects, such as
    printing, happen once. It is called again if something that it can read from outside has
    changed: a number by its value, an array or another object by its identity, a list or a dict by
    its elements, an attribute of an object as itself. (`array/guards/outside` says what that finds,
    and what not: the clock, files, and what functions in C keep to themselves.) Arrays from outside
    are used in place. A call in a recording, or in another such function, becomes a part of that
    recording.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(f"graph_function takes a function, not {type(function).__name__}")
        self._function = function
        self._parameters = inspect.signature(function)
        self._reasons: list[str] = []
        self._latest: Signature | None = None
        self._traces = 0
        self.__name__ = getattr(function, "__name__", "graph_function")
        self._known: Traces[Trace] = Traces(self.__name__, MOST_SIGNATURES)
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results for these arguments, as of a plain call. Raises whatever that raises,
        TypeError for an argument that is neither an array nor hashable, and RecordingError if the
        function asks for a value, or assigns to something outside. (`self.w -= y` may assign: an
        array that is written in place stays the same object.) If tracing raises, nothing was
        pushed."""
        engine: Any = current.engine()
        if engine.mode == "recording":
            return self._function(*args, **kwargs)
        bound = self._parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            signature = Signature(bound.arguments)
        except TypeError as error:
            raise TypeError(
                f"{self.__name__}: {error}: it takes arrays and hashable values, such as numbers"
            ) from None
        if signature.odd:
            self._note(f"called without a graph: {signature.odd}")
            return self._function(*args, **kwargs)
        trace = self._known.find(signature.key, signature.objects)
        if trace is None:
            trace = self._traced(bound, signature)
        return self._launched(trace, bound, signature, _getframe(1))

    def _launched(
        self,
        trace: Trace,
        bound: inspect.BoundArguments,
        signature: Signature,
        frame: FrameType,
    ) -> Any:
        try:
            return trace.launch(signature.arrays, frame)
        except ValueError as error:
            # Arrays overlap and would have to be copied. Nothing has been pushed.
            self._note(f"called without a graph: {error}")
            return self._function(*bound.args, **bound.kwargs)

    def _traced(self, bound: inspect.BoundArguments, signature: Signature) -> Trace:
        latest = self._latest
        outside = Outside(self._function, signature.objects)
        trace = Trace(self._function, bound, signature, outside, self.__name__)
        changed = self._known.keep(signature.key, outside, trace)
        self._traces += 1
        if latest is None:
            why = "the first call"
        else:
            why = "; ".join([*signature.against(latest), *changed])
        self._note(f"trace {self._traces}: {why}")
        self._latest = signature
        return trace

    @property
    def traces(self) -> int:
        """The number of times that the function was called to be recorded."""
        return self._traces

    def explain(self) -> str:
        """The reason for each trace, a line each, and for each call that was no launch."""
        return "\n".join(self._reasons) or "it was not called yet"

    def _note(self, reason: str) -> None:
        if reason not in self._reasons[-1:]:
            self._reasons = [*self._reasons, reason][-_MOST_REASONS:]

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """As a method: the object is an argument, by its identity."""
        return self if instance is None else _Method(self, instance)

    def __repr__(self) -> str:
        return f"<graph_function {self.__name__}, traced {self._traces} times>"


class _Method:
    """A graph function of one object."""

    def __init__(self, function: GraphFunction, instance: object) -> None:
        self._function = function
        self._instance = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self._instance, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def graph_function(function: Callable[..., Any]) -> GraphFunction:
    """Make a function a graph, as a decorator or a call: recorded at the first call of a signature,
    launched at each call. See `GraphFunction`."""
    return GraphFunction(function)
