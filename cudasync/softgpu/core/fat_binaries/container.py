"""Cellar, core. The entries of a fat binary's container.

A container is a header of 16 bytes, followed by entries. An entry is a header and a payload: PTX or
machine code for one compute capability, compressed or not. Every length is checked against the
bytes present, so a damaged container is INVALID_IMAGE.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from cudasync.softgpu.core.driver_types.result_codes import INVALID_IMAGE, DriverFailure

MAGIC: Final = 0xBA55ED50
HEADER_BYTES: Final = 16
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<IHHQ")
# kind, version, header bytes, payload bytes, compressed bytes, options, ISA, capability, ...
_ENTRY: Final = struct.Struct("<HHIQIIIIQQQQ")
_ENTRY_BYTES: Final = _ENTRY.size
_PTX: Final = 1
_MACHINE_CODE: Final = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a container, with its payload still packed."""

    kind: int
    capability: int
    """Ten times the major number plus the minor number: 75, 80, 120."""
    isa_major: int
    """The major PTX ISA version of the text."""
    flags: int
    size_bytes: int
    """The size of the unpacked payload."""
    payload: bytes

    @property
    def is_ptx(self) -> bool:
        """True for PTX."""
        return self.kind == _PTX

    @property
    def is_machine_code(self) -> bool:
        """True for a cubin."""
        return self.kind == _MACHINE_CODE


def is_container(image: bytes) -> bool:
    """Whether an image begins with a container's magic number."""
    return image[:4] == MAGIC.to_bytes(4, "little")


def size_of(header: bytes) -> int:
    """A container's size, from its first `HEADER_BYTES`; INVALID_IMAGE if it is damaged."""
    if len(header) < HEADER_BYTES:
        raise _damaged("its header is cut off")
    magic, version, header_bytes, size = _HEADER.unpack_from(header)
    if magic != MAGIC:
        raise _damaged(f"it begins with {magic:#x}")
    if version != _VERSION or header_bytes < HEADER_BYTES:
        raise _damaged(f"it has version {version} and a header of {header_bytes} bytes")
    return int(header_bytes + size)


def entries_of(image: bytes) -> list[Entry]:
    """The entries in their order; INVALID_IMAGE if a length does not fit."""
    end = size_of(image[:HEADER_BYTES])
    if end > len(image):
        raise _damaged(f"it has {len(image)} of its {end} bytes")
    found = []
    at: int = _HEADER.unpack_from(image)[2]
    while at < end:
        if end - at < _ENTRY_BYTES:
            raise _damaged(f"the entry at {at} is cut off")
        fields = _ENTRY.unpack_from(image, at)
        kind, _, header_bytes, payload_bytes, packed_bytes, _, isa, capability = fields[:8]
        flags, size_bytes = fields[9], fields[11]
        start = at + header_bytes
        if header_bytes < _ENTRY_BYTES or payload_bytes > end - start:
            raise _damaged(f"the entry at {at} is longer than the container")
        if packed_bytes > payload_bytes:
            raise _damaged(f"the entry at {at} has more compressed bytes than payload")
        payload = image[start : start + (packed_bytes or payload_bytes)]
        found.append(Entry(kind, capability, isa >> 16, flags, size_bytes, payload))
        at = start + payload_bytes
    return found


def _damaged(why: str) -> DriverFailure:
    return DriverFailure(
        INVALID_IMAGE, f"the fat binary is damaged: {why}; build the program again"
    )
