"""Floor 4, expressions. The body of a kernel: a variable for each node of the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.array.dtypes.supported import BOOL, FLOAT16
from cudasync.array.expressions.c_types import C_TYPES
from cudasync.array.expressions.tree import Apply, Cast, Index, Input, Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.array.dtypes.supported import DType
    from cudasync.array.expressions.tree import Expression


class Body:
    """The lines that compute a tree, with its arrays read at given places."""

    def __init__(self, places: Mapping[int, str], index: str) -> None:
        self.lines: list[str] = []
        self._places = places
        self._index = index
        # Equal nodes are computed once.
        self._known: dict[Expression, str] = {}

    def value(self, tree: Expression) -> str:
        """The name of the variable, or parameter, with the value of `tree`."""
        known = self._known.get(tree)
        if known is None:
            known = self._known[tree] = self._computed(tree)
        return known

    def _computed(self, tree: Expression) -> str:
        if isinstance(tree, Scalar):
            name = f"p{tree.position}"
            is_rounded = tree.dtype != FLOAT16
            return name if is_rounded else self._kept(f"from_half(to_half({name}))", tree.dtype)
        if isinstance(tree, Input):
            text = f"p{tree.position}[{self._places[tree.position]}]"
            return self._kept(f"from_half({text})" if tree.dtype == FLOAT16 else text, tree.dtype)
        if isinstance(tree, Index):
            return self._kept(f"({C_TYPES[tree.dtype].value}){self._index}", tree.dtype)
        if isinstance(tree, Cast):
            return self._kept(self._converted(tree), tree.dtype)
        assert isinstance(tree, Apply)
        operands = tuple(self.value(each) for each in tree.operands)
        computed_in = tree.operands[-1].dtype
        text = tree.function.text(computed_in, operands, C_TYPES[computed_in].value)
        return self._kept(
            f"from_half(to_half({text}))" if tree.dtype == FLOAT16 else text, tree.dtype
        )

    def _converted(self, tree: Cast) -> str:
        """Converts as C does, and so NumPy; to bool by comparing with 0."""
        operand = self.value(tree.operand)
        if tree.dtype == BOOL:
            return f"{operand} != 0"
        if tree.dtype == FLOAT16:
            source = operand if tree.operand.dtype.kind == "f" else f"(float){operand}"
            return f"from_half(to_half({source}))"
        return f"({C_TYPES[tree.dtype].value}){operand}"

    def _kept(self, text: str, dtype: DType) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"const {C_TYPES[dtype].value} {name} = {text};")
        return name


def stored(value: str, dtype: DType) -> str:
    """The expression that is written to memory for a variable."""
    return f"to_half({value})" if dtype == FLOAT16 else value
