"""Cellar. The formats of texels: the numeric formats of CUarray_format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    DriverFailure,
)

CHANNEL_COUNTS: Final = (1, 2, 4)
# CUarray_format has packed, compressed and video formats from here on.
_FIRST_OTHER: Final = 0x40


@dataclass(frozen=True, slots=True)
class Format:
    """One channel of a texel."""

    code: int
    size_bytes: int
    is_signed: bool = False
    is_float: bool = False

    @property
    def can_be_normalised(self) -> bool:
        """Whether a texture may read it as a fraction: integers of 8 and 16 bits."""
        return not self.is_float and self.size_bytes < 4

    @property
    def largest(self) -> int:
        """The integer that reads as 1.0 in a texture of fractions."""
        return (1 << (8 * self.size_bytes - self.is_signed)) - 1


_FORMATS: Final = {
    each.code: each
    for each in (
        Format(0x01, 1),
        Format(0x02, 2),
        Format(0x03, 4),
        Format(0x08, 1, is_signed=True),
        Format(0x09, 2, is_signed=True),
        Format(0x0A, 4, is_signed=True),
        Format(0x10, 2, is_signed=True, is_float=True),
        Format(0x20, 4, is_signed=True, is_float=True),
    )
}


def format_of(code: int) -> Format:
    """The format of a CUarray_format; DriverFailure if it is unknown or not modelled."""
    found = _FORMATS.get(code)
    if found is None:
        if code >= _FIRST_OTHER:
            raise DriverFailure(NOT_SUPPORTED, f"texels of format {code:#x} are not modelled")
        raise DriverFailure(INVALID_VALUE, f"there is no texel format {code:#x}")
    return found


def check_channels(count: int) -> None:
    """INVALID_VALUE for an invalid number of channels."""
    if count not in CHANNEL_COUNTS:
        raise DriverFailure(INVALID_VALUE, f"a texel has 1, 2 or 4 channels, not {count}")
