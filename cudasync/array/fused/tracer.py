"""Floor 4, fused functions. Tracers: the arguments of a function while it is traced.

A tracer stands for an array: operations on it make an expression and push nothing. It has a dtype,
by the rules of arrays, but no shape and no values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from cudasync.array import namespace
from cudasync.array.elementwise.operation import kind_of
from cudasync.array.expressions.tree import Index, Input, Scalar, leaves, substitute
from cudasync.array.operators.arithmetic import Arithmetic

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.array.dtypes.supported import DType
    from cudasync.array.elementwise.operation import Operation
    from cudasync.array.expressions.tree import Expression

# Beyond this many reads of operands, a fused kernel no longer helps.
MOST_LEAVES = 1000


class Trace:
    """One tracing: its operands so far, arrays and numbers, by their positions in expressions."""

    def __init__(self, arrays: list[Any]) -> None:
        self.operands: list[Any] = list(arrays)

    def array(self, array: Any) -> int:
        """The position of an array, which may be known already."""
        for at, each in enumerate(self.operands):
            if each is array:
                return at
        self.operands.append(array)
        return len(self.operands) - 1

    def number(self, value: Any) -> int:
        """A position for a number: each use has its own, because each has a dtype."""
        self.operands.append(value)
        return len(self.operands) - 1


class Tracer:
    """A stand-in for an array in the function that is traced."""

    __slots__ = ("leaves", "trace", "tree")

    # NumPy's scalars leave the operation to this class; plans are never found by it.
    __array_ufunc__ = None
    _layout = None

    def __init__(self, trace: Trace, tree: Expression, count: int = 1) -> None:
        self.trace = trace
        self.tree = tree
        self.leaves = count

    @property
    def dtype(self) -> DType:
        return self.tree.dtype

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return namespace.namespace(api_version)

    @staticmethod
    def __cudasync_trace__(
        operation: Operation, operands: tuple[Any, ...], target: Any
    ) -> Callable[[tuple[Any, ...], FrameType], Any]:
        """The function to call in place of a plan, if an operand is a tracer."""
        if target is not None:
            raise TypeError(
                f"{operation.name}: an elementwise function cannot write to arrays: call it with "
                f"out="
            )
        return lambda operands, frame: _applied(operation, operands)

    def _no_value(self, *_: object) -> NoReturn:
        raise TypeError(
            "an elementwise function is traced without values, so it cannot branch on one: use "
            "xp.where(condition, x, y)"
        )

    def _no_part(self, *_: object) -> NoReturn:
        raise TypeError(
            "an elementwise function sees one element at a time: index before the call, reduce "
            "after it"
        )

    __bool__ = __float__ = __int__ = __index__ = __complex__ = _no_value
    __len__ = __iter__ = __getitem__ = __setitem__ = __matmul__ = __rmatmul__ = _no_part

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"an array in an elementwise function has no {name!r}: it is traced for all shapes, "
            f"and only has a dtype and operators"
        )

    def __repr__(self) -> str:
        return f"<Tracer of {self.dtype}>"


for _name, _operator in vars(Arithmetic).items():
    # An in-place operator falls back to the plain one, and rebinds the name.
    if callable(_operator) and (not _name.startswith("__i") or _name == "__invert__"):
        setattr(Tracer, _name, _operator)


def _applied(operation: Operation, operands: tuple[Any, ...]) -> Tracer:
    """The operation as part of the expression."""
    traces = {id(each.trace): each.trace for each in operands if isinstance(each, Tracer)}
    if len(traces) > 1:
        raise TypeError(
            f"{operation.name} mixes arrays of two elementwise functions: pass them as arguments"
        )
    (trace,) = traces.values()
    kinds = [e.dtype if isinstance(e, Tracer) else kind_of(e, operation.name) for e in operands]
    tree = operation.build(kinds)
    dtypes = {leaf.position: leaf.dtype for leaf in leaves(tree) if not isinstance(leaf, Index)}
    inner: list[Any] = []
    count = 0
    for at, operand in enumerate(operands):
        if isinstance(operand, Tracer):
            inner.append(operand.tree)
            count += operand.leaves
        elif at not in dtypes:
            inner.append(None)
        elif hasattr(type(operand), "__cudasync_plan__"):
            inner.append(Input(trace.array(operand), dtypes[at]))
            count += 1
        else:
            inner.append(Scalar(trace.number(operand), dtypes[at]))
            count += 1
    if count > MOST_LEAVES:
        raise ValueError(
            f"the function reads its operands in {count} places, at most {MOST_LEAVES} fit in a "
            f"kernel: split it into two"
        )
    return Tracer(trace, substitute(tree, inner), count)
