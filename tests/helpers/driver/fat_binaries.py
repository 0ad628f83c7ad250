"""Fat binaries written for tests: containers of entries, each compressed in one of three ways.

The layout is that of NVIDIA's `fatbinary`. `test_native_programs.py` compares the reader with that
tool, where the tool is installed.
"""

from __future__ import annotations

import ctypes
import struct
from random import Random

PTX, MACHINE_CODE = 1, 2
RAW, LZ4, ZSTANDARD = 0, 0x2000, 0x8000
_HEADER_BYTES = 64


def container(*entries: bytes) -> bytes:
    """A fat binary of these entries."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def entry(
    kind: int, capability: int, data: bytes, compression: int = RAW, *, isa: int = 9
) -> bytes:
    """An entry with its header; `data` is the unpacked content."""
    packed = {RAW: bytes, LZ4: lz4_block, ZSTANDARD: zstandard_frame}[compression](data)
    payload = packed + b"\0" * (-len(packed) % 8)
    header = struct.pack(
        "<HHIQIIIIQQQQ",
        kind,
        0x101,
        _HEADER_BYTES,
        len(payload),
        len(packed) if compression else 0,
        0,
        isa << 16,
        capability,
        0,
        0x11 | compression,
        0,
        len(data) if compression else 0,
    )
    return header + payload


def wrapper(address: int, version: int = 1, objects: int = 0) -> bytes:
    """The structure in a program's data that points to its fat binary, or to an array."""
    return struct.pack("<IIQQ", 0x466243B1, version, address, objects)


def lz4_block(data: bytes) -> bytes:
    """Data as an LZ4 block. A match is the last occurrence of the same four bytes."""
    out, literals, at = bytearray(), bytearray(), 0
    seen: dict[bytes, int] = {}
    while at < len(data):
        key = data[at : at + 4]
        before = seen.get(key)
        seen[key] = at
        # The last five bytes are literals, by the format's rule.
        length = 0
        if before is not None and at - before < 1 << 16:
            most = len(data) - 5 - at
            while length < most and data[before + length] == data[at + length]:
                length += 1
        if length < 4:
            literals.append(data[at])
            at += 1
            continue
        out += sequence(bytes(literals), at - before, length)
        literals.clear()
        at += length
    return bytes(out + sequence(bytes(literals), 0, 0))


def sequence(literals: bytes, distance: int, length: int) -> bytes:
    """One sequence of a block; without `length` it is the last one."""
    count, match = len(literals), max(0, length - 4)
    out = bytearray([min(count, 15) << 4 | min(match, 15)])
    out += _more(count) + literals
    if length:
        out += distance.to_bytes(2, "little") + _more(match)
    return bytes(out)


def _more(count: int) -> bytes:
    if count < 15:
        return b""
    full, rest = divmod(count - 15, 255)
    return b"\xff" * full + bytes([rest])


def zstandard_frame(data: bytes) -> bytes:
    """Data as a zstd frame, made by Python 3.14's module or the system's library."""
    try:
        from compression import zstd
    except ImportError:
        library = ctypes.CDLL("libzstd.so.1")
        room = ctypes.create_string_buffer(len(data) + 1024)
        library.ZSTD_compress.restype = ctypes.c_size_t
        sizes = ctypes.c_size_t(len(room)), ctypes.c_size_t(len(data))
        count = library.ZSTD_compress(room, sizes[0], data, sizes[1], 3)
        return room.raw[:count]
    return zstd.compress(data)


def damaged(number: int) -> bytes:
    """A fat binary by number: one to three texts, with bytes exchanged, removed or inserted."""
    random = Random(f"fat binary {number}")
    text = b".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n"
    entries = [
        entry(
            random.choice((PTX, PTX, PTX, MACHINE_CODE, 7)),
            random.choice((70, 75, 80, 90)),
            text,
            random.choice((RAW, LZ4, ZSTANDARD)),
        )
        for _ in range(random.randrange(1, 4))
    ]
    image = bytearray(container(*entries))
    for _ in range(random.randrange(4)):
        # Damage mostly matters in the headers.
        end = random.choice((len(image), 16 + _HEADER_BYTES))
        place = random.randrange(4 if random.random() < 0.9 else 0, end)
        image[place : place + 1] = random.choice(
            (
                bytes([random.randrange(256)]),
                bytes([image[place] ^ 1 << random.randrange(8)]),
                b"\xff",
            )
        )
    if random.random() < 0.2:
        del image[random.randrange(20, len(image)) :]
    return bytes(image)
