"""Floor 4, expressions. Computes a tree by NumPy, for arrays on the CPU."""

from __future__ import annotations

from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.expressions.tree import Apply, Cast, Index, Input, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.array.expressions.tree import Expression


class _Quiet:
    """A stand-in for a context with NumPy 1, whose settings are per thread."""

    def run(self, function: Callable[..., Any], *operands: Any, **words: Any) -> None:
        with np.errstate(all="ignore"):
            function(*operands, **words)


_HAS_CONTEXTS = int(np.__version__.partition(".")[0]) >= 2
# Contexts in which NumPy does not warn, each for one call at a time. Entering one takes a tenth of
# the time of `errstate`. A call takes a context and puts it back, unless it raises.
QUIET: deque[Any] = deque()


def quiet() -> Any:
    """A new context for `QUIET`, with its `run`."""
    if not _HAS_CONTEXTS:
        return _Quiet()
    made = Context()
    made.run(np.seterr, all="ignore")
    return made


def quietly(function: Callable[..., Any], *operands: Any) -> None:
    """Call it with NumPy's warnings silenced, as on a device."""
    try:
        context = QUIET.pop()
    except IndexError:
        context = quiet()
    context.run(function, *operands)
    QUIET.append(context)


# A graph may wrap one call of it around many (`graph/parts/call_loop`): entering a context takes as
# long as a small addition.
quietly.takes_many = True  # type: ignore[attr-defined]


def compute(tree: Expression, operands: Sequence[Any], result: np.ndarray[Any, Any]) -> None:
    """Write the value of `tree` to `result`; operands are arrays and numbers, by position.

    NumPy's warnings are silenced, as on a device.
    """
    quietly(compute_aloud, tree, operands, result)


def compute_aloud(tree: Expression, operands: Sequence[Any], result: np.ndarray[Any, Any]) -> None:
    """`compute`, with NumPy's warnings as they are set."""
    if isinstance(tree, Apply) and not isinstance(tree.function.host, np.ufunc):
        np.copyto(result, _value(tree, operands, result))
    elif isinstance(tree, Apply):
        inner = [_value(each, operands, result) for each in tree.operands]
        tree.function.host(*inner, out=result)
    else:
        np.copyto(result, _value(tree, operands, result), casting="unsafe")


def direct(tree: Expression, operands: int) -> np.ufunc | None:
    """The single ufunc that equals `tree`, applied to all operands in order; None if there is
    none."""
    if isinstance(tree, Apply) and isinstance(tree.function.host, np.ufunc):
        places = [each.position for each in tree.operands if isinstance(each, (Input, Scalar))]
        if places == list(range(operands)) and len(places) == len(tree.operands):
            return tree.function.host
    return None


def number(leaf: Scalar, value: Any) -> Any:
    """A number as a NumPy scalar of its dtype in the tree."""
    return np.asarray(value).astype(leaf.dtype)


def _value(tree: Expression, operands: Sequence[Any], result: np.ndarray[Any, Any]) -> Any:
    if isinstance(tree, Input):
        return operands[tree.position]
    if isinstance(tree, Scalar):
        return number(tree, operands[tree.position])
    if isinstance(tree, Index):
        return np.arange(result.size, dtype=tree.dtype).reshape(result.shape)
    if isinstance(tree, Cast):
        return np.asarray(_value(tree.operand, operands, result)).astype(tree.dtype)
    return tree.function.host(*(_value(each, operands, result) for each in tree.operands))
