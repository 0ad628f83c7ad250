"""Floor 1. Remedies in error messages for arguments that a parameter does not take.

Each remedy is an expression in `x`, the given argument, that the parameter takes; a test evaluates
them.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from cudasync.driver.arguments.parameter import Parameter

_FLOATS = {ScalarType.F16: "np.float16", ScalarType.F32: "np.float32", ScalarType.F64: "np.float64"}


def described(value: Any) -> str:
    """The kind of `value`, with an article."""
    kind = type(value)
    if isinstance(value, np.ndarray):
        return f"a NumPy array ({value.dtype}{list(value.shape)}), which is host memory"
    if kind.__module__ == "numpy":
        return f"a numpy.{kind.__name__}"
    return f"{'an' if kind.__name__[0] in 'aeiouAEIOU' else 'a'} {kind.__name__}"


def instead_of(value: Any, parameter: Parameter) -> str:
    """The remedy for `value`, whose type `parameter` does not take."""
    if parameter.is_array or parameter.size_bytes not in (1, 2, 4, 8):
        return f"give its {parameter.size_bytes} bytes"
    name = "x"
    if isinstance(value, ctypes._SimpleCData):
        value, name = value.value, "x.value"
    if isinstance(value, complex | np.complexfloating):
        return f"give {_number(parameter, is_float=True, of=f'{name}.real')}"
    if isinstance(value, float | np.floating):
        return f"give {_number(parameter, is_float=True, of=name)}"
    if isinstance(value, int | np.integer | np.bool_):
        return f"give {_number(parameter, is_float=False, of=name)}"
    if parameter.size_bytes == 8 and not parameter.type.is_float:
        return _memory(value)
    return f"give a number, such as {_number(parameter, is_float=False, of='1')}"


def in_range(value: Any, parameter: Parameter) -> str:
    """The remedy for `value`, which is out of the range of `parameter`."""
    if parameter.is_array or parameter.size_bytes not in (1, 2, 4, 8):
        return f"give its {parameter.size_bytes} bytes"
    if parameter.type in _FLOATS:
        return f"give {_FLOATS[parameter.type]}(np.inf) if infinity will do"
    if parameter.type.is_float:
        return "give float(np.inf) if infinity will do"
    bits = 8 * parameter.size_bytes
    if parameter.type.is_signed:
        return f"give np.uint{bits}(x & {(1 << bits) - 1:#x}) if its low {bits} bits are meant"
    return f"give x & {(1 << bits) - 1:#x} if its low {bits} bits are meant"


def _number(parameter: Parameter, *, is_float: bool, of: str) -> str:
    """An expression that converts the number `of` for `parameter`; `is_float` is its kind."""
    type_, bits = parameter.type, 8 * parameter.size_bytes
    if type_ in _FLOATS:
        return f"{_FLOATS[type_]}({of})"
    if type_ is ScalarType.BF16:
        return f"float({of})"
    if type_.is_float:
        return f"np.uint{bits}(bits), the bits of all that it holds"
    if not is_float:
        return f"np.{'int' if type_.is_signed else 'uint'}{bits}({of})"
    if bits == 8:
        return f"int({of})"
    if type_.value[0] == "b":
        return f"np.float{bits}({of}) or int({of})"
    return f"int({of}) or, if the bits are meant, np.float{bits}({of}).view(np.uint{bits})"


def _memory(value: Any) -> str:
    if value is None:
        return "give 0 for a null pointer"
    if isinstance(value, np.ndarray | list | tuple):
        return "copy it to a DeviceBuffer, or give cs.array(x) to kernel[grid, block]"
    return "give a device array, a DeviceBuffer or an address"
