"""Cellar. printf of device code, after the CUDA C++ Programming Guide, "Formatted Output".

Arguments lie as `printf_arguments` says, floats promoted to double, small integers to int. A
missing argument reads as zero.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from cudasync.softgpu.interface.printf_arguments import CONVERSION, LONG

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

_NARROW = {b"hh": 8, b"h": 16}
# A wider field is a mistake, or malice.
_WIDEST = 1 << 12


class _Arguments:
    """Reads one argument after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, layout: str) -> int | float:
        size = struct.calcsize(layout)
        start = -(-self._position // size) * size
        self._position = start + size
        piece = self._data[start : start + size].ljust(size, b"\0")
        value: int | float = struct.unpack(layout, piece)[0]
        return value

    def width(self, text: bytes | None) -> int | None:
        """A width or precision: a number, or the next argument."""
        if text is None:
            return None
        found = int(self.take("<i")) if text == b"*" else int(text)
        return max(-_WIDEST, min(found, _WIDEST))


def formatted(text: bytes, data: bytes, string_at: Callable[[int], bytes]) -> bytes:
    """Format `text` with the arguments in `data`; `string_at` reads the strings of %s."""
    arguments = _Arguments(data)

    def convert(match: re.Match[bytes]) -> bytes:
        return _converted(match, arguments, string_at)

    return CONVERSION.sub(convert, text)


def _converted(
    match: re.Match[bytes], arguments: _Arguments, string_at: Callable[[int], bytes]
) -> bytes:
    letter = match["letter"].decode()
    if letter == "%":
        return b"%"
    flags = match["flags"].decode()
    width = arguments.width(match["width"]) or 0
    if width < 0:
        flags, width = flags + "-", -width
    has_precision = b"." in match[0]
    precision = arguments.width(match["precision"])
    if has_precision and precision is None:
        precision = 0
    if precision is not None and precision < 0:
        precision = None
    point = "" if precision is None else f".{precision}"
    pattern = f"%{flags}{width or ''}{point}"
    match letter:
        case "c":
            return _padded(bytes([int(arguments.take("<i")) & 0xFF]), flags, width)
        case "s":
            found = string_at(int(arguments.take("<Q")))
            return _padded(found[:precision], flags, width)
        case "p":
            address = int(arguments.take("<Q"))
            return _padded(b"0x%x" % address if address else b"(nil)", flags, width)
        case "n":
            arguments.take("<Q")
            return b""
        case "d" | "i" | "o" | "u" | "x" | "X":
            return _integer(match["length"], letter, pattern, arguments)
    value = float(arguments.take("<d"))
    if letter in "aA":
        return _padded(_hexadecimal(value, letter), flags, width)
    return (pattern + letter).encode() % value


def _integer(length: bytes | None, letter: str, pattern: str, arguments: _Arguments) -> bytes:
    is_signed = letter in "di"
    value = int(arguments.take("<q" if length in LONG else "<i"))
    bits = 64 if length in LONG else _NARROW.get(length or b"", 32)
    value &= (1 << bits) - 1
    if is_signed and value >> (bits - 1):
        value -= 1 << bits
    spelled = (pattern + ("d" if letter in "diu" else letter)).encode() % value
    # C writes 017, Python 0o17.
    return spelled.replace(b"0o", b"0") if letter == "o" else spelled


def _hexadecimal(value: float, letter: str) -> bytes:
    """%a: as C spells it, without the zeros at the end."""
    found = value.hex()
    if "p" in found:
        digits, _, power = found.partition("p")
        found = digits.rstrip("0").rstrip(".") + "p" + power
    return (found.upper() if letter == "A" else found).encode()


def _padded(text: bytes, flags: str, width: int) -> bytes:
    return text.ljust(width) if "-" in flags else text.rjust(width)
