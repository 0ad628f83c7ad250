"""Cellar, abi. Runtime API, Memory Management: descriptions of the channels of texels."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.textures.formats import Format

_INVALID_CHANNEL_DESCRIPTOR: Final = 20
# cudaChannelFormatKind.
_SIGNED, _UNSIGNED, _FLOAT = 0, 1, 2
_CODES: Final = {
    (_UNSIGNED, 8): 0x01,
    (_UNSIGNED, 16): 0x02,
    (_UNSIGNED, 32): 0x03,
    (_SIGNED, 8): 0x08,
    (_SIGNED, 16): 0x09,
    (_SIGNED, 32): 0x0A,
    (_FLOAT, 16): 0x10,
    (_FLOAT, 32): 0x20,
}


class ChannelDescriptor(ctypes.Structure):
    """cudaChannelFormatDesc: the bits of each channel, 0 for a missing channel."""

    _fields_ = (("bits", ctypes.c_int * 4), ("kind", ctypes.c_int))


def channels_of(what: ChannelDescriptor) -> tuple[int, int]:
    """The CUarray_format of each channel, and the number of channels."""
    bits = [each for each in what.bits if each]
    is_leading = bits == list(what.bits)[: len(bits)]
    code = _CODES.get((what.kind, bits[0])) if bits else None
    if code is None or len(set(bits)) != 1 or not is_leading:
        raise DriverFailure(
            _INVALID_CHANNEL_DESCRIPTOR,
            f"texels cannot have channels of {list(what.bits)} bits and kind {what.kind}",
        )
    return code, len(bits)


def describe_channels(what: ChannelDescriptor, of: Format, count: int) -> None:
    """Write the description that `channels_of` reads."""
    bits = 8 * of.size_bytes
    what.bits[:] = [bits if channel < count else 0 for channel in range(4)]
    what.kind = _FLOAT if of.is_float else _SIGNED if of.is_signed else _UNSIGNED
