"""Floor 1. A kernel's parameters: their types, and the conversion of Python values to bytes.

PTX types say less than CUDA C's: nvcc writes `.u32` for an `int` and `.u64` for a pointer. So an
integer parameter takes either sign of its width, and an untyped `.b32` takes any scalar of four
bytes. NumPy scalars must match the width exactly; a Python number takes the parameter's type.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from cuda.bindings import driver

from cudasync.driver.arguments.argument_checks import form_of_interface, refuse_misfit
from cudasync.driver.arguments.argument_form import form_of
from cudasync.driver.arguments.remedies import described, in_range, instead_of
from cudasync.ptx.types import Access, ScalarType

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from cudasync.driver.arguments.argument_form import Form
    from cudasync.driver.device import Device
    from cudasync.ptx.access_analysis.accesses import FieldAccess

    # From a value of one Python type to a value that `struct` packs.
    Encode: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel.

    `access` is the access through it if it is a pointer, inferred from the PTX; `reason` names the
    lines. `is_array` is True for a struct by value, which takes bytes. `element` is the type of
    number of the kernel's accesses to the memory, if the PTX shows one. `fields` are the words in
    it (or its only word) that the kernel uses as addresses.
    """

    name: str
    type: ScalarType
    size_bytes: int
    access: Access
    is_array: bool = False
    element: ScalarType | None = None
    reason: str = ""
    fields: tuple[FieldAccess, ...] = ()

    def __str__(self) -> str:
        extent = f"[{self.size_bytes // self.type.size}]" if self.is_array else ""
        return f".{self.type.value} {self.name}{extent}"


class Encoder:
    """Converts values for one parameter so that `struct` packs them under `format`.

    The conversion of each type of value is decided once and cached. `written` leaves the check of
    the range to `struct`; after a refusal of `struct`, `exactly` decides and gives the message.
    `kernel` and its device are for the refusal of memory.
    """

    __slots__ = ("_by_type", "_device", "_kernel", "_parameter", "_position", "format")

    def __init__(
        self, position: int, parameter: Parameter, kernel: str = "", device: Device | None = None
    ) -> None:
        self._position = position
        self._parameter = parameter
        self._kernel = kernel
        self._device = device
        self._by_type: dict[type, Encode] = {}
        size = parameter.size_bytes
        if parameter.is_array or size not in (1, 2, 4, 8):
            self.format = f"{size}s"
        elif parameter.type in _FLOAT_FORMATS:
            self.format = _FLOAT_FORMATS[parameter.type]
        else:
            unsigned = {1: "B", 2: "H", 4: "I", 8: "Q"}[size]
            self.format = unsigned.lower() if parameter.type.is_signed else unsigned

    def exactly(self, value: Any) -> Any:
        """The value to pack. Raises TypeError or ValueError with the parameter's name."""
        encode = self._encode_of(value)
        form = form_of(value)
        if form is not None:
            address: int = encode(value)
            self._refuse_misfit(form, address)
            return address
        if encode == self._foreign:
            return encode(value)
        try:
            encoded = encode(value)
            if self.format in _INTEGER_FORMATS:
                return self._wrapped(encoded, is_typed=isinstance(value, np.generic))
            struct.pack("<" + self.format, encoded)
        except (ValueError, OverflowError) as error:
            remedy = in_range(value, self._parameter)
            raise ValueError(f"{self._named()}: {error}: {remedy}") from None
        return encoded

    def written(self, value: Any) -> tuple[str, str, Encode]:
        """The generated code that packs values of this type, which the parameter takes.

        The format for `struct`; an expression with "{0}" for the value and "{1}" for the encoder;
        the encoder. A value that `struct` converts by itself needs no call.
        """
        encode = self._encode_of(value)
        if isinstance(encode, operator.attrgetter):
            return self.format, "{0}.ptr", encode
        is_typed = isinstance(value, np.generic)
        kind = value.dtype.kind if is_typed else ""
        if kind and kind in "iu" and encode is int:
            # Only the bits matter: nvcc writes .u32 for an int, too.
            return self.format.lower() if kind == "i" else self.format.upper(), "{0}", encode
        if encode is operator.pos or encode is float:
            return self.format, "{0}", encode
        return self.format, "{1}({0})", encode

    def is_memory(self, value: Any) -> bool:
        """True if `value`, which the parameter takes, stands for memory rather than a number."""
        encode = self._encode_of(value)
        return encode == self._foreign or isinstance(encode, operator.attrgetter)

    def _foreign(self, value: Any) -> int:
        """The address of another library's array, which may change between calls."""
        described = getattr(value, "__cuda_array_interface__", None)
        if not isinstance(described, dict):
            raise TypeError(f"{self._named()}: its __cuda_array_interface__ has disappeared")
        address = int(described["data"][0] or 0)
        self._refuse_misfit(form_of_interface(value, described, address), address)
        return address

    def _refuse_misfit(self, form: Form, address: int) -> None:
        refuse_misfit(self._named(), self._kernel, self._device, self._parameter, form, address)

    def _wrapped(self, value: int, *, is_typed: bool) -> int:
        """An integer in the range of `struct`: unsigned and untyped parameters take either sign.

        The bits of a NumPy scalar are right with either sign. Raises ValueError if out of range.
        """
        bits = 8 * self._parameter.size_bytes
        is_signed = self._parameter.type.is_signed
        low = -(1 << bits - 1)
        high = 1 << (bits - 1 if is_signed and not is_typed else bits)
        if not low <= value < high:
            raise ValueError(f"{value} is not in [{low}, {high})")
        value &= (1 << bits) - 1
        return value - (1 << bits) if is_signed and value >> bits - 1 else value

    @property
    def parameter(self) -> Parameter:
        return self._parameter

    def _named(self) -> str:
        return f"argument {self._position + 1} ({self._parameter})"

    def _encode_of(self, value: Any) -> Encode:
        encode = self._by_type.get(type(value))
        if encode is None:
            encode = self._by_type[type(value)] = self._encode_for(value)
        return encode

    def _encode_for(self, value: Any) -> Encode:
        """The encoder for values of this type. Raises TypeError if the parameter refuses them."""
        encode: Encode | None
        if self.format[-1] == "s":
            encode = _bytes_encoder(value, self._parameter.size_bytes)
        elif isinstance(value, np.generic):
            encode = _scalar_encoder(value, self._parameter.type, self.format)
        elif isinstance(value, int):
            encode = _number_encoder(self._parameter.type, int)
        elif isinstance(value, float):
            encode = _number_encoder(self._parameter.type, float)
        else:
            encode = self._pointer_encoder(value) if self._is_pointer_sized() else None
        if encode is None:
            remedy = instead_of(value, self._parameter)
            raise TypeError(f"{self._named()} does not take {described(value)}: {remedy}")
        return encode

    def _pointer_encoder(self, value: Any) -> Encode | None:
        """For an address: `.ptr`, `__cuda_array_interface__`, or the binding's CUdeviceptr."""
        if isinstance(getattr(value, "ptr", None), int):
            return operator.attrgetter("ptr")
        if isinstance(value, driver.CUdeviceptr):
            return int
        if isinstance(value, ctypes.c_void_p):
            return lambda value: value.value or 0
        return self._foreign if hasattr(value, "__cuda_array_interface__") else None

    def _is_pointer_sized(self) -> bool:
        return self._parameter.size_bytes == 8 and not self._parameter.type.is_float


_INTEGER_FORMATS = frozenset("BHIQbhiq")
_FLOAT_FORMATS = {ScalarType.F16: "e", ScalarType.F32: "f", ScalarType.F64: "d"}


def _bytes_encoder(value: Any, size: int) -> Encode | None:
    """For a struct by value: any contiguous memory of exactly its size."""
    try:
        memoryview(value)
    except TypeError:
        return None

    def encode(value: Any) -> bytes:
        raw = bytes(memoryview(value))
        if len(raw) != size:
            raise ValueError(f"the value has {len(raw)} bytes, the parameter {size}")
        return raw

    return encode


def _scalar_encoder(value: np.generic, type_: ScalarType, format_: str) -> Encode | None:
    """For a NumPy scalar: its value where width and kind match, its bits where the type is `.b`."""
    kind = value.dtype.kind
    if value.dtype.itemsize != struct.calcsize("<" + format_) or type(value) is np.void:
        return None
    if format_ in "efd":
        return float if kind == "f" else None
    if type_.is_float:  # bf16 and packed pairs: by their bits.
        return _bits if kind in "uVif" else None
    if kind in "iub":
        return int
    return _bits if kind == "f" and type_.value[0] == "b" else None


def _bits(value: Any) -> int:
    return int.from_bytes(value.tobytes(), "little")


def _number_encoder(type_: ScalarType, number: type[int] | type[float]) -> Encode | None:
    """For a Python number: an int goes for any type, a float for floating types only."""
    if type_ is ScalarType.BF16:
        return _bf16
    if type_.is_float:
        return float if type_ in _FLOAT_FORMATS else None
    # No Python function, so no call; it also turns a bool into an int.
    return operator.pos if number is int else None


def _bf16(value: float) -> int:
    """The bits of the nearest bf16, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", float(value)))
    if value != value:
        return int(bits >> 16 | 0x40)
    return int(bits + 0x7FFF + (bits >> 16 & 1) >> 16)


_TYPES = {
    np.dtype(f"{kind}{size}"): ScalarType(f"{letter}{8 * size}")
    for kind, letter in (("i", "s"), ("u", "u"), ("f", "f"))
    for size in ((2, 4, 8) if kind == "f" else (1, 2, 4, 8))
}


class _NumberEncoder(Encoder):
    """The conversion of a number that has a name and a dtype, instead of a place in a kernel."""

    __slots__ = ()

    def _named(self) -> str:
        return f"{self._kernel} ({self._parameter.name})"


def number_as(dtype: np.dtype[Any], value: Any, named: str) -> Any:
    """`value` as a NumPy scalar of `dtype`, by the rule of a kernel call: a NumPy scalar must have
    the width of the dtype, and a Python number takes its type.

    Unlike a kernel's parameter, a dtype has a sign: an integer must be in its range. Raises
    TypeError and ValueError, which say what is `named`.
    """
    if isinstance(value, np.ndarray) and not value.shape:
        value = value[()]
    is_number = isinstance(value, int | float | complex | np.generic)
    type_ = _TYPES.get(dtype)
    if type_ is not None and is_number:
        parameter = Parameter(str(dtype), type_, dtype.itemsize, Access.VALUE)
        _NumberEncoder(0, parameter, named).exactly(value)
        if dtype.kind in "iu" and not np.iinfo(dtype).min <= int(value) <= np.iinfo(dtype).max:
            raise ValueError(f"{named} ({dtype}): {value} is out of its range")
        return dtype.type(value)
    if isinstance(value, np.generic) or not is_number:
        if getattr(value, "dtype", None) == dtype and is_number:
            return value
    elif dtype.kind == "c" or (dtype.kind == "b" and isinstance(value, bool)):
        with np.errstate(over="ignore"):
            found = dtype.type(value)
        if np.isfinite(found) or not np.isfinite(complex(value)):
            return found
        raise ValueError(f"{named} ({dtype}): {value} is out of its range")
    raise TypeError(f"{named} is a {dtype}, and does not take {described(value)}")
