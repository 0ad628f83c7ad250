"""Floor 4, operators. `+` and its kin: the standard's operators, reflected and in place.

Each pushes one operation and returns at once. The plan is looked up here, because for small arrays
the time until the push decides the speed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync.array.elementwise.operation import NotAnOperand
from cudasync.array.elementwise.operations import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    # mypy cannot name a subclass that does not exist yet.
    Unary = Callable[[Any], Any]
    Binary = Callable[[Any, Any], Any]

_getframe = sys._getframe


def _binary(name: str) -> Binary:
    operation = OPERATIONS[name]
    plans = operation.plans

    def operator(self: Any, other: Any) -> Any:
        try:
            key = (self._layout, other._layout)
        except AttributeError:
            key = (self._layout, type(other))
        plan = plans.get(key)
        if plan is not None:
            return plan((self, other), _getframe(1))
        try:
            return operation((self, other), _getframe(1))
        except NotAnOperand:
            return NotImplemented

    return operator


def _reflected(name: str) -> Binary:
    operation = OPERATIONS[name]

    def operator(self: Any, other: Any) -> Any:
        try:
            return operation((other, self), _getframe(1))
        except NotAnOperand:
            return NotImplemented

    return operator


def _in_place(name: str) -> Binary:
    operation = OPERATIONS[name]

    def operator(self: Any, other: Any) -> Any:
        try:
            operation.into((self, other), self, _getframe(1))
        except NotAnOperand:
            return NotImplemented
        return self

    return operator


def _unary(name: str) -> Unary:
    operation = OPERATIONS[name]

    def operator(self: Any) -> Any:
        return operation((self,), _getframe(1))

    return operator


class Arithmetic:
    """The operators of an array. In place, the result's dtype must be the array's own."""

    __slots__ = ()

    __add__, __radd__, __iadd__ = _binary("add"), _reflected("add"), _in_place("add")
    __sub__, __rsub__, __isub__ = (
        _binary("subtract"),
        _reflected("subtract"),
        _in_place("subtract"),
    )
    __mul__, __rmul__, __imul__ = (
        _binary("multiply"),
        _reflected("multiply"),
        _in_place("multiply"),
    )
    __truediv__, __rtruediv__ = _binary("divide"), _reflected("divide")
    __itruediv__ = _in_place("divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _reflected("floor_divide")
    __ifloordiv__ = _in_place("floor_divide")
    __mod__, __rmod__ = _binary("remainder"), _reflected("remainder")
    __imod__ = _in_place("remainder")
    __pow__, __rpow__, __ipow__ = _binary("pow"), _reflected("pow"), _in_place("pow")

    __and__, __rand__ = _binary("bitwise_and"), _reflected("bitwise_and")
    __iand__ = _in_place("bitwise_and")
    __or__, __ror__, __ior__ = (
        _binary("bitwise_or"),
        _reflected("bitwise_or"),
        _in_place("bitwise_or"),
    )
    __xor__, __rxor__ = _binary("bitwise_xor"), _reflected("bitwise_xor")
    __ixor__ = _in_place("bitwise_xor")
    __lshift__, __rlshift__ = (
        _binary("bitwise_left_shift"),
        _reflected("bitwise_left_shift"),
    )
    __ilshift__ = _in_place("bitwise_left_shift")
    __rshift__, __rrshift__ = (
        _binary("bitwise_right_shift"),
        _reflected("bitwise_right_shift"),
    )
    __irshift__ = _in_place("bitwise_right_shift")

    __neg__, __pos__, __abs__ = _unary("negative"), _unary("positive"), _unary("abs")
    __invert__ = _unary("bitwise_invert")

    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    if not TYPE_CHECKING:  # Unlike `object`'s, these return an array.
        __eq__, __ne__ = _binary("equal"), _binary("not_equal")

    # Sets and dicts compare arrays by identity, not by elements.
    __hash__ = object.__hash__

    # NumPy's operators leave expressions with arrays of ours to this class.
    __array_ufunc__ = None
