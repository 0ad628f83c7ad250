"""Floor 4, expressions. A tree computed by NumPy: what CPU arrays run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.expressions.tree import Apply, Cast, Index, Input, Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.expressions.tree import Expression


def compute(tree: Expression, operands: Sequence[Any], result: np.ndarray[Any, Any]) -> None:
    """Write the value of `tree` to `result`; operands are arrays and numbers, by position.

    What NumPy warns of is silent here, as it is on a device.
    """
    with np.errstate(all="ignore"):
        if isinstance(tree, Apply) and not isinstance(tree.function.host, np.ufunc):
            np.copyto(result, _value(tree, operands, result))
        elif isinstance(tree, Apply):
            inner = [_value(each, operands, result) for each in tree.operands]
            tree.function.host(*inner, out=result)
        else:
            np.copyto(result, _value(tree, operands, result), casting="unsafe")


def direct(tree: Expression, operands: int) -> np.ufunc | None:
    """The one ufunc that `tree` is, of all its operands in their order; None where it is more."""
    if isinstance(tree, Apply) and isinstance(tree.function.host, np.ufunc):
        places = [each.position for each in tree.operands if isinstance(each, Input)]
        if places == list(range(operands)) and len(places) == len(tree.operands):
            return tree.function.host
    return None


def _value(tree: Expression, operands: Sequence[Any], result: np.ndarray[Any, Any]) -> Any:
    if isinstance(tree, Input):
        return operands[tree.position]
    if isinstance(tree, Scalar):
        return np.asarray(operands[tree.position]).astype(tree.dtype)
    if isinstance(tree, Index):
        return np.arange(result.size, dtype=tree.dtype).reshape(result.shape)
    if isinstance(tree, Cast):
        return np.asarray(_value(tree.operand, operands, result)).astype(tree.dtype)
    return tree.function.host(*(_value(each, operands, result) for each in tree.operands))
