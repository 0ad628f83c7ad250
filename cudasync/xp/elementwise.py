"""Floor 4, the standard's namespace: elementwise functions, each a push of one kernel.

They take arrays of one device, Python's numbers, which are weak, and NumPy's scalars; shapes
broadcast. Each returns at once with a new array. With `out`, an array of the result's dtype and
shape, it writes to that array and returns it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync.array.dtypes.promotion import WEAK
from cudasync.array.elementwise import operations
from cudasync.array.elementwise.operation import COPY, Operation
from cudasync.array.elementwise.operations import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable

_getframe = sys._getframe


def _function(operation: Operation, arity: int) -> Callable[..., Any]:
    name = operation.name
    plans = operation.plans

    if arity == 1:

        def unary(x: Any, /, *, out: Any = None) -> Any:
            if out is None:
                return operation((x,), _getframe(1))
            operation.into((x,), out, _getframe(1))
            return out

        function: Callable[..., Any] = unary
    else:

        def binary(x1: Any, x2: Any, /, *, out: Any = None) -> Any:
            if out is None:
                try:
                    plan = plans.get((x1._layout, x2._layout))
                except AttributeError:
                    plan = None
                if plan is None:
                    return operation((x1, x2), _getframe(1))
                return plan((x1, x2), _getframe(1))
            operation.into((x1, x2), out, _getframe(1))
            return out

        function = binary
    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    function.__doc__ = (
        f"`{name}` of the array API standard, element by element: a new array, or `out`.\n\n"
        "Returns at once. TypeError for dtypes that do not go together, ValueError for shapes or\n"
        "devices that do not."
    )
    return function


def clip(x: Any, /, min: Any = None, max: Any = None, *, out: Any = None) -> Any:
    """The elements of `x`, with those beyond `min` and `max` (numbers, arrays or None) set to
    these.

    The dtype is that of `x`; TypeError for bounds that it does not hold. Returns at once.
    """
    frame = _getframe(1)
    bounds = tuple(each for each in (min, max) if each is not None)
    operation = operations.clip(min is not None, max is not None) if bounds else COPY
    if out is None:
        return operation((x, *bounds), frame)
    operation.into((x, *bounds), out, frame)
    return out


def where(condition: Any, x1: Any, x2: Any, /, *, out: Any = None) -> Any:
    """Elements of `x1` where `condition`, an array of bool, is true, else of `x2`; broadcasts.

    Returns at once. TypeError for another dtype of the condition, and for two numbers.
    """
    if type(x1) in WEAK and type(x2) in WEAK:
        raise TypeError(
            "where needs at least one array among its choices: make one with xp.asarray"
        )
    operation = OPERATIONS["where"]
    if out is None:
        return operation((condition, x1, x2), _getframe(1))
    operation.into((condition, x1, x2), out, _getframe(1))
    return out


abs = _function(OPERATIONS["abs"], 1)
acos = _function(OPERATIONS["acos"], 1)
acosh = _function(OPERATIONS["acosh"], 1)
asin = _function(OPERATIONS["asin"], 1)
asinh = _function(OPERATIONS["asinh"], 1)
atan = _function(OPERATIONS["atan"], 1)
atanh = _function(OPERATIONS["atanh"], 1)
bitwise_invert = _function(OPERATIONS["bitwise_invert"], 1)
ceil = _function(OPERATIONS["ceil"], 1)
conj = _function(OPERATIONS["conj"], 1)
cos = _function(OPERATIONS["cos"], 1)
cosh = _function(OPERATIONS["cosh"], 1)
exp = _function(OPERATIONS["exp"], 1)
expm1 = _function(OPERATIONS["expm1"], 1)
floor = _function(OPERATIONS["floor"], 1)
imag = _function(OPERATIONS["imag"], 1)
isfinite = _function(OPERATIONS["isfinite"], 1)
isinf = _function(OPERATIONS["isinf"], 1)
isnan = _function(OPERATIONS["isnan"], 1)
log = _function(OPERATIONS["log"], 1)
log1p = _function(OPERATIONS["log1p"], 1)
log2 = _function(OPERATIONS["log2"], 1)
log10 = _function(OPERATIONS["log10"], 1)
logical_not = _function(OPERATIONS["logical_not"], 1)
negative = _function(OPERATIONS["negative"], 1)
positive = _function(OPERATIONS["positive"], 1)
real = _function(OPERATIONS["real"], 1)
reciprocal = _function(OPERATIONS["reciprocal"], 1)
round = _function(OPERATIONS["round"], 1)
sign = _function(OPERATIONS["sign"], 1)
signbit = _function(OPERATIONS["signbit"], 1)
sin = _function(OPERATIONS["sin"], 1)
sinh = _function(OPERATIONS["sinh"], 1)
square = _function(OPERATIONS["square"], 1)
sqrt = _function(OPERATIONS["sqrt"], 1)
tan = _function(OPERATIONS["tan"], 1)
tanh = _function(OPERATIONS["tanh"], 1)
trunc = _function(OPERATIONS["trunc"], 1)

add = _function(OPERATIONS["add"], 2)
atan2 = _function(OPERATIONS["atan2"], 2)
bitwise_and = _function(OPERATIONS["bitwise_and"], 2)
bitwise_left_shift = _function(OPERATIONS["bitwise_left_shift"], 2)
bitwise_or = _function(OPERATIONS["bitwise_or"], 2)
bitwise_right_shift = _function(OPERATIONS["bitwise_right_shift"], 2)
bitwise_xor = _function(OPERATIONS["bitwise_xor"], 2)
copysign = _function(OPERATIONS["copysign"], 2)
divide = _function(OPERATIONS["divide"], 2)
equal = _function(OPERATIONS["equal"], 2)
floor_divide = _function(OPERATIONS["floor_divide"], 2)
greater = _function(OPERATIONS["greater"], 2)
greater_equal = _function(OPERATIONS["greater_equal"], 2)
hypot = _function(OPERATIONS["hypot"], 2)
less = _function(OPERATIONS["less"], 2)
less_equal = _function(OPERATIONS["less_equal"], 2)
logaddexp = _function(OPERATIONS["logaddexp"], 2)
logical_and = _function(OPERATIONS["logical_and"], 2)
logical_or = _function(OPERATIONS["logical_or"], 2)
logical_xor = _function(OPERATIONS["logical_xor"], 2)
maximum = _function(OPERATIONS["maximum"], 2)
minimum = _function(OPERATIONS["minimum"], 2)
multiply = _function(OPERATIONS["multiply"], 2)
nextafter = _function(OPERATIONS["nextafter"], 2)
not_equal = _function(OPERATIONS["not_equal"], 2)
pow = _function(OPERATIONS["pow"], 2)
remainder = _function(OPERATIONS["remainder"], 2)
subtract = _function(OPERATIONS["subtract"], 2)
