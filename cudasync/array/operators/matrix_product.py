"""Floor 4, operators. `@`: the matrix product, as an operator of arrays."""

from __future__ import annotations

import sys
from typing import Any

from cudasync.array.elementwise.operation import NotAnOperand
from cudasync.array.products.operation import product, product_into

_getframe = sys._getframe


class Multiplying:
    """The matrix product from either side. In place, it must have the array's dtype and shape."""

    __slots__ = ()

    def __matmul__(self, other: Any) -> Any:
        try:
            return product(self, other, _getframe(1))
        except NotAnOperand:
            return NotImplemented

    def __rmatmul__(self, other: Any) -> Any:
        try:
            return product(other, self, _getframe(1))
        except NotAnOperand:
            return NotImplemented

    def __imatmul__(self, other: Any) -> Any:
        try:
            product_into(self, other, self, _getframe(1))
        except NotAnOperand:
            return NotImplemented
        return self
