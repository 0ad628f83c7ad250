"""Floor 4, expressions. A tree of elementwise functions, as a value.

Equal trees are equal keys of a dict, and so share one kernel. Every node has the dtype of its
value. Operands of `Apply` have the dtype in which it computes, so a cast is a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cudasync.array.dtypes.supported import INT64

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.dtypes.supported import DType
    from cudasync.array.functions.function import Function


@dataclass(frozen=True, slots=True)
class Input:
    """An element of the array operand at `position`."""

    position: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class Scalar:
    """The number operand at `position`, which each launch is given anew."""

    position: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class Index:
    """The index of the element in C order; for results whose other operands are scalars."""

    dtype: DType = INT64


@dataclass(frozen=True, slots=True)
class Cast:
    """`operand` as another dtype."""

    operand: Expression
    dtype: DType


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of operands, with a result of `dtype`."""

    function: Function
    operands: tuple[Expression, ...]
    dtype: DType


Expression: TypeAlias = Input | Scalar | Index | Cast | Apply


def cast(operand: Expression, dtype: DType) -> Expression:
    """`operand` as this dtype, or itself if it has it."""
    return operand if operand.dtype == dtype else Cast(operand, dtype)


def apply(function: Function, *operands: Expression) -> Expression:
    """The function of operands of one dtype."""
    return Apply(function, operands, function.gives(operands[-1].dtype))


def substitute(tree: Expression, operands: Sequence[Expression]) -> Expression:
    """`tree` with these expressions in place of its inputs and scalars, by position.

    This merges two trees: fusion substitutes the producer of an input.
    """
    if isinstance(tree, (Input, Scalar)):
        return operands[tree.position]
    if isinstance(tree, Cast):
        return cast(substitute(tree.operand, operands), tree.dtype)
    if isinstance(tree, Apply):
        inner = tuple(substitute(each, operands) for each in tree.operands)
        return Apply(tree.function, inner, tree.dtype)
    return tree


def leaves(tree: Expression) -> list[Input | Scalar | Index]:
    """The leaves from left to right, with repetitions."""
    if isinstance(tree, Cast):
        return leaves(tree.operand)
    if isinstance(tree, Apply):
        return [leaf for each in tree.operands for leaf in leaves(each)]
    return [tree]


def name_of(tree: Expression) -> str:
    """The names of its functions, outermost first: the name of the kernel and its ops."""
    if isinstance(tree, Apply):
        inner = [name_of(each) for each in tree.operands if isinstance(each, (Apply, Cast))]
        return "_".join([tree.function.name, *(each for each in inner if each != "cast")])
    if isinstance(tree, Cast):
        below = name_of(tree.operand)
        return "cast" if below == "copy" else below
    return {Input: "copy", Scalar: "fill", Index: "index"}[type(tree)]
