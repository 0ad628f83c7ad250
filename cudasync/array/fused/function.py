"""Floor 4, fused functions. `@cs.elementwise`: traced once per signature, one kernel for each."""

from __future__ import annotations

import sys
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, NamedTuple

from cudasync.array.elementwise.operation import Operation
from cudasync.array.expressions.tree import Index, Input, leaves, substitute
from cudasync.array.fused.free_variables import kind_from_outside, kind_of_value, named_by
from cudasync.array.fused.tracer import Trace, Tracer

if TYPE_CHECKING:
    from collections.abc import Callable
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
        self._known: dict[Any, tuple[tuple[_Output, ...], bool]] = {}
        self.__name__ = getattr(function, "__name__", "elementwise")
        update_wrapper(self, function)

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """The results for these arguments, bit for bit as if each operation ran by itself.

        The function is called once for the dtypes of its arrays, the values of its other arguments,
        and those of the numbers and arrays that it names from outside. Its other dependencies count
        as they were at that call. Its exceptions are raised here. TypeError if it asks for values,
        shapes or parts, or returns anything but its computed values.
        """
        if any(isinstance(each, Tracer) for each in args):
            return self._function(*args)
        frame = _getframe(1)
        arrays = [each for each in args if hasattr(type(each), "__cudasync_plan__")]
        try:
            key = (*[_kind(each) for each in args], *self._named())
            known = self._known.get(key)
        except TypeError:
            raise TypeError(
                f"{self.__name__} takes arrays of xp.asarray(...) and hashable values, such as "
                f"numbers"
            ) from None
        if known is None:
            if len(self._known) >= _MOST_SIGNATURES:
                self._known.clear()
            known = self._known[key] = self._traced(args, arrays)
        outputs, is_tuple = known
        if out is not None:
            return self._into(out, outputs, is_tuple, arrays, frame)
        results = [o.operation(_operands(o, arrays), frame) for o in outputs]
        return tuple(results) if is_tuple else results[0]

    @property
    def signatures(self) -> int:
        """The number of signatures it was traced for, as far as it remembers them."""
        return len(self._known)

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

    def _named(self) -> list[Any]:
        """The numbers and arrays from outside that the function names, as part of the key."""
        # `_known` keeps the arrays alive, so no other array has the id of one.
        return [(name, kind_from_outside(value)) for name, value in named_by(self._function)]

    def _traced(self, args: tuple[Any, ...], arrays: list[Any]) -> tuple[tuple[_Output, ...], bool]:
        trace = Trace(arrays)
        given = iter(range(len(arrays)))
        stand_ins = [
            Tracer(trace, Input(next(given), each.dtype))
            if hasattr(type(each), "__cudasync_plan__")
            else each
            for each in args
        ]
        returned = self._function(*stand_ins)
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


def _renumbered(tree: Expression, places: dict[int, int]) -> Expression:
    moved: list[Any] = [None] * (max(places, default=-1) + 1)
    for leaf in leaves(tree):
        if not isinstance(leaf, Index):
            moved[leaf.position] = type(leaf)(places[leaf.position], leaf.dtype)
    return substitute(tree, moved)
