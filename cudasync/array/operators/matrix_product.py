"""Floor 4, operators. `@`: the matrix product, as an operator of arrays."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync import late
from cudasync.array.elementwise.operation import NotAnOperand

if TYPE_CHECKING:
    from cudasync.array.products import operation as _products
else:
    _products = late.Module("cudasync.array.products.operation")

_getframe = sys._getframe


class Multiplying:
    """The matrix product from either side. In place, it must have the array's dtype and shape."""

    __slots__ = ()

    def __matmul__(self, other: Any) -> Any:
        try:
            return _products.product(self, other, _getframe(1))
        except NotAnOperand:
            return NotImplemented

    def __rmatmul__(self, other: Any) -> Any:
        try:
            return _products.product(other, self, _getframe(1))
        except NotAnOperand:
            return NotImplemented

    def __imatmul__(self, other: Any) -> Any:
        try:
            _products.product_into(self, other, self, _getframe(1))
        except NotAnOperand:
            return NotImplemented
        return self
