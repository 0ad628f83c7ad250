"""Floor 4, functions. One elementwise function: dtypes, CUDA C for each kind, NumPy's equivalent.

A text is an expression of CUDA C in `{0}`, `{1}`, ..., the names of variables that hold the
operands, and `{T}`, their type. Its keys are letters of the kinds of dtype that it is for. "e" is
float16, if that needs a text of its own: its values are floats that float16 can represent, and the
kernel's generator rounds the result to float16. Texts may call the functions in `helpers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.dtypes.supported import BOOL, FLOAT16, FLOAT32

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cudasync.array.dtypes.supported import DType

_WORDS = {"b": "bool", "i": "signed integers", "u": "unsigned integers", "f": "floats"}


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """An elementwise function. Each has one object, so functions compare by identity.

    All operands have one dtype, except the first of a `selects`, which is bool. `is_wide` computes
    float32 in float64 on a device, where CUDA's own function would be more than 2 ulp off.
    """

    name: str
    arity: int
    texts: Mapping[str, str]
    host: Callable[..., Any]
    gives_bool: bool = False
    is_wide: bool = False
    selects: bool = False

    @property
    def takes(self) -> str:
        """The kinds of dtype that it takes, as letters."""
        return "".join(dict.fromkeys("".join(self.texts).replace("e", "f")))

    def accept(self, dtype: DType) -> None:
        """Raise TypeError unless operands may have this dtype, once they are promoted."""
        if dtype.kind not in self.takes:
            raise TypeError(
                f"{self.name} takes {self._taken()}, not {dtype}: cast with xp.astype(x, "
                f"xp.{self._instead(dtype)})"
            )

    def _taken(self) -> str:
        words = [_WORDS[kind] for kind in self.takes]
        return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)

    def _instead(self, dtype: DType) -> str:
        if self.takes == "b":
            return "bool"
        if dtype.kind == "b":
            return "int8" if "i" in self.takes else "float32"
        return "float32" if "f" in self.takes else "int64"

    def gives(self, dtype: DType) -> DType:
        """The dtype of the result for operands of `dtype`."""
        return BOOL if self.gives_bool else dtype

    def text(self, dtype: DType, operands: tuple[str, ...], c_type: str) -> str:
        """Its CUDA C for operands of this dtype, in these variables of type `c_type`."""
        kind = "e" if dtype == FLOAT16 and "e" in self.texts else dtype.kind
        template = next(text for kinds, text in self.texts.items() if kind in kinds)
        if self.is_wide and dtype == FLOAT32:
            wide = template.format(*(f"(double){each}" for each in operands), T="double")
            return f"(float)({wide})"
        return template.format(*operands, T=c_type)


def of_ufunc(name: str, texts: Mapping[str, str], **facts: bool) -> Function:
    """The function with NumPy's ufunc of this name."""
    ufunc = getattr(np, name)
    return Function(name, arity_of(ufunc), texts, ufunc, **facts)


def arity_of(ufunc: np.ufunc) -> int:
    """The number of its operands."""
    return ufunc.nargs - ufunc.nout
