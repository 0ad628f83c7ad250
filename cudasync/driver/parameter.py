"""Floor 1. A kernel's parameters: their types, and how a Python value becomes each one's bytes.

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

from cudasync.driver.interop import device_array
from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from cudasync.ptx.access import Access

    # From a value of one Python type to what `struct` packs.
    Encode: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel.

    `access` is what the kernel does through it if it is a pointer, inferred from the PTX.
    `is_array` is True for a struct by value, which takes bytes.
    """

    name: str
    type: ScalarType
    size_bytes: int
    access: Access
    is_array: bool = False

    def __str__(self) -> str:
        extent = f"[{self.size_bytes // self.type.size}]" if self.is_array else ""
        return f".{self.type.value} {self.name}{extent}"


class Encoder:
    """Turns values for one parameter into what `struct` packs under `format`.

    What a type of value becomes is decided once and remembered. `written` leaves the range to
    `struct` to check, and then `struct` refuses: `exactly` has the last word, and the message.
    """

    __slots__ = ("_by_type", "_parameter", "_position", "format")

    def __init__(self, position: int, parameter: Parameter) -> None:
        self._position = position
        self._parameter = parameter
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
        """The value to pack. Raises TypeError or ValueError naming the parameter."""
        encode = self._encode_of(value)
        try:
            encoded = encode(value)
            if self.format in _INTEGER_FORMATS:
                return self._wrapped(encoded, is_typed=isinstance(value, np.generic))
            struct.pack("<" + self.format, encoded)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{self._named()}: {error}") from None
        return encoded

    def written(self, value: Any) -> tuple[str, str, Encode]:
        """How to write out the packing of values of this type, which the parameter takes.

        The format for `struct`; an expression with "{0}" for the value and "{1}" for the encoder;
        the encoder. What `struct` converts by itself needs no call.
        """
        encode = self._encode_of(value)
        if isinstance(encode, operator.attrgetter):
            return self.format, "{0}.ptr", encode
        is_typed = isinstance(value, np.generic)
        kind = value.dtype.kind if is_typed else ""
        if kind and kind in "iu" and encode is int:
            # The bits count: nvcc writes .u32 for an int, too.
            return self.format.lower() if kind == "i" else self.format.upper(), "{0}", encode
        if encode is operator.pos or encode is float:
            return self.format, "{0}", encode
        return self.format, "{1}({0})", encode

    def is_memory(self, value: Any) -> bool:
        """True if `value`, which the parameter takes, stands for memory rather than a number."""
        encode = self._encode_of(value)
        return encode is _address or isinstance(encode, operator.attrgetter)

    def _wrapped(self, value: int, *, is_typed: bool) -> int:
        """An integer as `struct` takes it: either sign for unsigned and untyped parameters.

        The bits of a NumPy scalar are right whatever its sign. Raises ValueError otherwise.
        """
        bits = 8 * self._parameter.size_bytes
        is_signed = self._parameter.type.is_signed
        low = -(1 << bits - 1)
        high = 1 << (bits - 1 if is_signed and not is_typed else bits)
        if not low <= value < high:
            raise ValueError(f"{value} is not in [{low}, {high})")
        value &= (1 << bits) - 1
        return value - (1 << bits) if is_signed and value >> bits - 1 else value

    def _named(self) -> str:
        return f"argument {self._position + 1} ({self._parameter})"

    def _encode_of(self, value: Any) -> Encode:
        encode = self._by_type.get(type(value))
        if encode is None:
            encode = self._by_type[type(value)] = self._encode_for(value)
        return encode

    def _encode_for(self, value: Any) -> Encode:
        """How values of the type of `value` are encoded; TypeError if they are not taken."""
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
            encode = _pointer_encoder(value) if self._is_pointer_sized() else None
        if encode is None:
            raise TypeError(f"{self._named()} does not take {_described(value)}")
        return encode

    def _is_pointer_sized(self) -> bool:
        return self._parameter.size_bytes == 8 and not self._parameter.type.is_float


_INTEGER_FORMATS = frozenset("BHIQbhiq")
_FLOAT_FORMATS = {ScalarType.F16: "e", ScalarType.F32: "f", ScalarType.F64: "d"}


def _described(value: Any) -> str:
    kind = type(value)
    if isinstance(value, np.ndarray):
        return (
            f"a NumPy array ({value.dtype}{list(value.shape)}), which is host memory: "
            "copy it to a DeviceBuffer"
        )
    if kind.__module__ == "numpy":
        return f"a numpy.{kind.__name__}"
    if isinstance(value, float):
        return "a float, since its width is not known: give a NumPy scalar"
    return f"a {kind.__name__}"


def _bytes_encoder(value: Any, size: int) -> Encode | None:
    """For a struct by value: any contiguous memory of exactly its size."""
    try:
        memoryview(value)
    except TypeError:
        return None

    def encode(value: Any) -> bytes:
        raw = bytes(memoryview(value))
        if len(raw) != size:
            raise ValueError(f"{len(raw)} bytes given, {size} taken")
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
    # Without a call of a Python function; it makes an int of a bool, too.
    return operator.pos if number is int else None


def _bf16(value: float) -> int:
    """The bits of the nearest bf16, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if value != value:
        return int(bits >> 16 | 0x40)
    return int(bits + 0x7FFF + (bits >> 16 & 1) >> 16)


def _pointer_encoder(value: Any) -> Encode | None:
    """For an address: `.ptr`, `__cuda_array_interface__`, or the binding's own CUdeviceptr."""
    if isinstance(getattr(value, "ptr", None), int):
        return operator.attrgetter("ptr")
    if isinstance(value, driver.CUdeviceptr):
        return int
    if isinstance(value, ctypes.c_void_p):
        return lambda value: value.value or 0
    if hasattr(value, "__cuda_array_interface__"):
        return _address
    return None


def _address(value: Any) -> int:
    found = device_array(value)
    if found is None:
        raise ValueError("its __cuda_array_interface__ is gone")
    return found.address
