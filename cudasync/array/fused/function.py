"""Floor 4, fused functions. `@cs.elementwise`: traced once per signature, one kernel for each."""

from __future__ import annotations

import sys
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.array.elementwise.operation import Operation
from cudasync.array.expressions.tree import Index, Input, leaves, substitute
from cudasync.array.fused.constants import ConstantsOnly
from cudasync.array.fused.tracer import Trace, Tracer
from cudasync.array.guards.facts import is_plain, kind_of_value
from cudasync.array.guards.outside import Outside
from cudasync.array.guards.tracing import Traces, Watch
from cudasync.engine import current

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from cudasync.array.expressions.tree import Expression

_MOST_SIGNATURES = 512
_getframe = sys._getframe


class _Output(NamedTuple):
    """One result: its operation, the arrays that the operation takes, and its other operands."""

    operation: Operation
    taken: tuple[int, ...]
    more: tuple[Any, ...]


class Elementwise:
    """A function of arrays that is one kernel, made by `cs.elementwise`.

    Call it with arrays of one device, or of the CPU, whose shapes broadcast. Returns at once.
    `out=` takes the result, as in `xp`'s functions.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise TypeError(f"elementwise takes a function, not {type(function).__name__}")
        self._function = function
        self.__name__ = getattr(function, "__name__", "elementwise")
        self._traces: Traces[tuple[tuple[_Output, ...], bool]]
        self._traces = Traces(self.__name__, _MOST_SIGNATURES)
        update_wrapper(self, function)

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """The results for these arguments, bit for bit as if each operation ran by itself.

        The function is called once for the dtypes of its arrays and the values of its other
        arguments, and again if something that it can read from outside has changed: see
        `array/guards/outside`. Its exceptions are raised here. TypeError if it asks for values,
        shapes or parts, if it computes with arrays from outside alone, or if it returns anything
        but its computed values. RecordingError if it assigns to something outside.
        """
        if any(isinstance(each, Tracer) for each in args):
            return self._function(*args)
        frame = _getframe(1)
        arrays = [each for each in args if hasattr(type(each), "__cudasync_plan__")]
        try:
            key = tuple([_kind(each) for each in args])
            objects = _objects(args) if len(arrays) < len(args) else ()
            known = self._traces.find(key, objects)
        except TypeError:
            raise TypeError(
                f"{self.__name__} takes arrays of xp.asarray(...) and hashable values, such as "
                f"numbers"
            ) from None
        if known is None:
            outside = Outside(self._function, objects)
            known = self._traced(args, arrays, outside)
            self._traces.keep(key, outside, known)
        outputs, is_tuple = known
        if out is not None:
            return self._into(out, outputs, is_tuple, arrays, frame)
        results = [o.operation(_operands(o, arrays), frame) for o in outputs]
        return tuple(results) if is_tuple else results[0]

    @property
    def signatures(self) -> int:
        """The number of signatures it was traced for, as far as it remembers them."""
        return len(self._traces)

    def _into(
        self,
        out: Any,
        outputs: tuple[_Output, ...],
        is_tuple: bool,
        arrays: list[Any],
        frame: FrameType,
    ) -> Any:
        if is_tuple:
            raise TypeError(
                f"{self.__name__} has {len(outputs)} results, and out= takes one "
                f"result: leave out= out"
            )
        outputs[0].operation.into(_operands(outputs[0], arrays), out, frame)
        return out

    def _traced(
        self, args: tuple[Any, ...], arrays: list[Any], outside: Outside
    ) -> tuple[tuple[_Output, ...], bool]:
        trace = Trace(arrays)
        given = iter(range(len(arrays)))
        stand_ins = [
            Tracer(trace, Input(next(given), each.dtype))
            if hasattr(type(each), "__cudasync_plan__")
            else each
            for each in args
        ]
        engine: Any = ConstantsOnly(self.__name__, outside)
        with current.using(engine), Watch(outside, self.__name__, is_constant=True):
            returned = self._function(*stand_ins)
        outside.settle()
        is_tuple = isinstance(returned, tuple)
        results = returned if is_tuple else (returned,)
        for each in results:
            if not isinstance(each, Tracer) or each.trace is not trace:
                raise TypeError(
                    f"{self.__name__} returned {type(each).__name__}, which is not computed from "
                    f"its arrays"
                )
        if not results:
            raise TypeError(f"{self.__name__} returned nothing: return an array")
        return tuple(self._output(each.tree, trace, len(arrays)) for each in results), is_tuple

    def _output(self, tree: Expression, trace: Trace, count: int) -> _Output:
        used = sorted({e.position for e in leaves(tree) if not isinstance(e, Index)})
        numbered = _renumbered(tree, {at: place for place, at in enumerate(used)})
        return _Output(
            Operation(self.__name__, lambda _: numbered, is_named=True),
            tuple(at for at in used if at < count),
            tuple(trace.operands[at] for at in used if at >= count),
        )

    def __repr__(self) -> str:
        return f"<elementwise {self.__name__}, {self.signatures} signatures>"


def elementwise(function: Callable[..., Any]) -> Elementwise:
    """Make one kernel per signature of a Python function of arrays, as a decorator or a call.

    The function takes arrays and numbers, and computes with operators and `xp`'s elementwise
    functions. See `Elementwise` for what a call does.
    """
    return Elementwise(function)


def _operands(output: _Output, arrays: list[Any]) -> tuple[Any, ...]:
    return (*[arrays[at] for at in output.taken], *output.more)


def _kind(argument: Any) -> Any:
    """The property of an argument on which the function may depend."""
    if hasattr(type(argument), "__cudasync_plan__"):
        return argument.dtype
    return kind_of_value(argument)


def _objects(args: tuple[Any, ...]) -> Sequence[tuple[str, Any]]:
    """The objects among the arguments: the function may read their attributes."""
    return [
        (f"argument {at}", each)
        for at, each in enumerate(args)
        if not is_plain(each) and not hasattr(type(each), "__cudasync_plan__")
    ]


def _renumbered(tree: Expression, places: dict[int, int]) -> Expression:
    moved: list[Any] = [None] * (max(places, default=-1) + 1)
    for leaf in leaves(tree):
        if not isinstance(leaf, Index):
            moved[leaf.position] = type(leaf)(places[leaf.position], leaf.dtype)
    return substitute(tree, moved)
