"""Floor 4, traced functions. `@cs.graph_function`: recorded once per signature, launched each time.

True throughout: a call that can not be a launch of a graph is a call of the function. So whatever a
trace can not take has the meaning that it always had, and `explain()` says so.
"""

from __future__ import annotations

import inspect
import sys
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from cudasync.array.fused.outside import kind_from_outside, named_by
from cudasync.array.traced.signature import Signature
from cudasync.array.traced.trace import Trace
from cudasync.engine import current

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_getframe = sys._getframe
# So many signatures are kept ready, those that were called lately.
MOST_SIGNATURES = 64
# And so many reasons are remembered.
_MOST_REASONS = 100


class GraphFunction:
    """A function that is recorded as a graph for each signature, made by `cs.graph_function`.

    A call returns at once. Its arguments are arrays, and whatever else can be hashed, in tuples,
    lists and dicts; results are new arrays each time.

    The function is called once for each signature: the shapes, dtypes and devices of its arrays,
    which of them are the same, and the values of all else. So what it does beside pushing work,
    such as printing, it does once. Numbers that it names from outside count as arguments; arrays
    and other objects from outside are used as and where they are, and another in their place is
    another signature. Called in a recording, or by another such function, it is a part of that.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(f"graph_function takes a function, not {type(function).__name__}")
        self._function = function
        self._parameters = inspect.signature(function)
        self._known: dict[Any, Trace] = {}
        self._reasons: list[str] = []
        self._latest: Signature | None = None
        self._traces = 0
        self.__name__ = getattr(function, "__name__", "graph_function")
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results for these arguments, as of a plain call. Raises what that raises, TypeError
        for an argument that is no array and can not be hashed, and RecordingError where the
        function asks for a value. If tracing raises, nothing was pushed."""
        engine: Any = current.engine()
        if engine.mode == "recording":
            return self._function(*args, **kwargs)
        bound = self._parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        outside = list(named_by(self._function))
        try:
            signature = Signature(
                bound.arguments, {name: kind_from_outside(value) for name, value in outside}
            )
        except TypeError as error:
            raise TypeError(
                f"{self.__name__}: {error}: it takes arrays and what can be hashed, such as numbers"
            ) from None
        if signature.odd:
            self._note(f"called as it is: {signature.odd}")
            return self._function(*args, **kwargs)
        trace = self._known.pop(signature.key, None) or self._traced(bound, signature, outside)
        for each in list(self._known)[: max(0, len(self._known) + 1 - MOST_SIGNATURES)]:
            self._known.pop(each, None)
        self._known[signature.key] = trace
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
            # Arrays that overlap and would be copied. Nothing has been pushed.
            self._note(f"called as it is: {error}")
            return self._function(*bound.args, **bound.kwargs)

    def _traced(
        self,
        bound: inspect.BoundArguments,
        signature: Signature,
        outside: list[tuple[str, Any]],
    ) -> Trace:
        latest = self._latest
        trace = Trace(self._function, bound, signature, outside)
        self._traces += 1
        why = "the first call" if latest is None else signature.against(latest)
        self._note(f"trace {self._traces}: {why}")
        self._latest = signature
        return trace

    @property
    def traces(self) -> int:
        """How often the function was called to be recorded."""
        return self._traces

    def explain(self) -> str:
        """Why it was traced each time, a line each; and why some calls were no launches."""
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
    """Make a function a graph, as a decorator or a call: recorded at the first call with arguments
    of a kind, launched at each. See `GraphFunction`."""
    return GraphFunction(function)
