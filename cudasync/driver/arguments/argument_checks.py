"""Floor 1. Checks of memory arguments against the kernel: elements, order, device.

Memory that would silently give garbage is refused with a helpful error. The rule for elements:

- it applies if the kernel shows one type of number for a parameter, in every access (see
  `ptx.element_types`); a kernel that only moves bits takes any array;
- numbers of the array must be of that type, of either sign if it is an integer; complex numbers
  consist of floats;
- NumPy has no bfloat16, so integers of two bytes stand for it, and integers of the size of a pair
  for two floats that the kernel moves together;
- memory without numbers, such as a buffer and structures, is not checked. `x.view(dtype)` of an
  array has the type that it was given, so it says that these bits are meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from cuda.bindings import driver

from cudasync.driver.arguments.argument_form import form_for
from cudasync.driver.memory.operand import device_of_address
from cudasync.driver.memory.strides import is_contiguous
from cudasync.ptx.types import Access, ScalarType

if TYPE_CHECKING:
    from cudasync.driver.arguments.argument_form import Form
    from cudasync.driver.arguments.parameter import Parameter
    from cudasync.driver.device import Device

# The elements of a pair.
_ONE = {
    ScalarType.F16X2: ScalarType.F16,
    ScalarType.BF16X2: ScalarType.BF16,
    ScalarType.F32X2: ScalarType.F32,
}
# NumPy's names; bfloat16 is from ml_dtypes.
_DTYPE_NAMES = {
    ScalarType.F16: "float16",
    ScalarType.BF16: "bfloat16",
    ScalarType.F32: "float32",
    ScalarType.F64: "float64",
    ScalarType.S16: "int16",
    ScalarType.S32: "int32",
    ScalarType.S64: "int64",
}
_HOST_MEMORY = 1


def refuse_misfit(
    argument: str, kernel: str, on: Device | None, parameter: Parameter, form: Form, address: int
) -> None:
    """Refuse memory of `form` that a kernel loaded on device `on` cannot take for `parameter`.

    `argument` names the argument. Raises TypeError for elements of another type, ValueError for
    gaps and for memory of another device.
    """
    if parameter.access is Access.VALUE:
        return
    form.raise_if_over()
    if form.dtype is not None and not _may_hold(form.dtype, parameter.element):
        assert parameter.element is not None
        wanted = _DTYPE_NAMES[_ONE.get(parameter.element, parameter.element)]
        numpy_type = f"np.{wanted}" if wanted != "bfloat16" else "ml_dtypes.bfloat16"
        if parameter.element.is_float:
            found = f"reads or writes .{parameter.element.value} there, which is {wanted}"
        else:
            found = f"computes with integers of {parameter.element.size} bytes there"
        raise TypeError(
            f"kernel {kernel}: {argument} is an array of {form.dtype}, but the PTX {found}: give "
            f"cs.array(..., {numpy_type}), or x.view({numpy_type}) if these bits are meant"
        )
    if form.has_gaps:
        raise ValueError(
            f"kernel {kernel}: {argument} is not C-contiguous, and the kernel expects contiguous "
            f"memory: give x.copy(), or cs.strided(x) if the kernel gets the strides"
        )
    if form.device is not None and on is not None and form.device is not on:
        if is_everywhere(on, address):
            return
        sentence = f"kernel {kernel} is loaded on {on!r}, {argument} is memory of {form.device!r}: "
        ordinal = getattr(form.device, "ordinal", None)
        if ordinal is None:
            # An array on the CPU.
            raise ValueError(f"{sentence}give x.to_device({on.ordinal})")
        raise ValueError(
            f"{sentence}copy it, cs.copy(cs.empty(x.shape, x.dtype, device={on.ordinal}), x), or "
            f"load the module there, cs.Module.from_ptx(..., device={ordinal})"
        )


def form_of_interface(owner: object, described: dict[str, Any], address: int) -> Form:
    """The form of another library's array, by its `__cuda_array_interface__`."""
    dtype = np.dtype(described["typestr"])
    shape = tuple(described["shape"])
    has_gaps = not is_contiguous(shape, described.get("strides"), dtype.itemsize)
    return form_for(type(owner), dtype, has_gaps, device_of_address(owner, address))


def _may_hold(dtype: np.dtype[Any], element: ScalarType | None) -> bool:
    """Whether a kernel may use an array of `dtype` as numbers of this type."""
    if element is None:
        return True
    one = _ONE.get(element, element)
    if dtype.name == "bfloat16":
        return one is ScalarType.BF16
    is_ieee = one.is_float and one is not ScalarType.BF16
    match dtype.kind:
        case "f":
            return is_ieee and dtype.itemsize == one.size
        case "c":
            return is_ieee and dtype.itemsize == 2 * one.size
        case "i" | "u":
            if one is ScalarType.BF16:
                return dtype.itemsize in (one.size, element.size)
            is_pair = one is not element
            return (is_pair or not one.is_float) and dtype.itemsize == element.size
    return dtype.kind != "b"


def is_everywhere(device: Device, address: int) -> bool:
    """True for managed memory and page-locked host memory: every device reaches it."""
    if not address:
        return True
    device.context.enter()
    attributes = driver.CUpointer_attribute
    code, is_managed = driver.cuPointerGetAttribute(
        attributes.CU_POINTER_ATTRIBUTE_IS_MANAGED, address
    )
    if not code and is_managed:
        return True
    code, kind = driver.cuPointerGetAttribute(attributes.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
    return not code and int(kind) == _HOST_MEMORY
