"""Cellar. Writes a shared library without a compiler: exports that jump through a table.

The library's code is mostly trampolines. Trampoline i jumps to the address in slot i of a writable
table, which Python fills. Some trampolines are exported, each under one or several names. The rest
are for addresses handed out at run time. More pieces of code return a constant each, for the time
after Python's end, and one enters Python (`python_entry.py`). The layout follows the System V gABI
and the x86-64 and AArch64 psABIs: one read-execute segment with header, symbols and code, one
read-write segment with the dynamic section and the slots.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from cudasync.softgpu.abi.stub import python_entry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SLOTS_SYMBOL: Final = "softgpu_slots"
SONAME: Final = "libcuda.so.1"
TRAMPOLINE_BYTES: Final = 16

_MACHINES: Final = {"x86_64": 62, "AMD64": 62, "aarch64": 183, "arm64": 183}
# Segments must not share a page; AArch64 kernels may use pages of 64 KiB.
_PAGE_BYTES: Final = 0x10000
_HEADER_BYTES: Final = 64
_PROGRAM_HEADER_BYTES: Final = 56
_SYMBOL_BYTES: Final = 24
_PROGRAM_HEADERS: Final = 4
_DYNAMIC_ENTRIES: Final = 7
_VERSION_ENTRIES: Final = 3


class Stub(NamedTuple):
    """The bytes of the library, and offsets in it from its load address."""

    image: bytes
    slots_offset: int
    trampolines_offset: int
    constants_offset: int
    entry_offset: int | None
    """Where a slot jumps to call Python; None if the machine has no such code."""
    table_offset: int
    """The data that the code reads: see `python_entry.py`."""


def build(
    symbols: Mapping[str, int],
    slot_count: int,
    constants: Sequence[int],
    *,
    machine: str,
    soname: str = SONAME,
    version: str = "",
) -> Stub:
    """A library that exports `symbols`, each with the number of a slot, and returns `constants`.

    It has `slot_count` slots, and the loader knows it as `soname`. With `version`, all symbols have
    that version, which clients linked with such a library ask for. ValueError for a machine whose
    instructions are not known here.
    """
    if machine not in _MACHINES:
        raise ValueError(f"the software GPU has no stub for {machine}: x86_64, aarch64")
    if slot_count <= max(symbols.values(), default=0):
        raise ValueError(f"{slot_count} slots are too few")
    exported = [*symbols, SLOTS_SYMBOL]
    more = [version] if version and version != soname else []
    strings, name_offsets = _string_table([*exported, soname, *more])
    symbol_count = len(exported) + 1  # the null symbol first, the slots last
    hash_table = _hash_table(exported)

    symbols_offset = _align(_HEADER_BYTES + _PROGRAM_HEADERS * _PROGRAM_HEADER_BYTES, 8)
    hash_offset = symbols_offset + _SYMBOL_BYTES * symbol_count
    strings_offset = hash_offset + len(hash_table)
    versions_offset = _align(strings_offset + len(strings), 8)
    definitions, numbers = b"", b""
    if version:
        definitions = _version_definitions(
            (soname, name_offsets[soname]), (version, name_offsets[version])
        )
        numbers = _version_numbers(symbol_count)
    numbers_offset = versions_offset + len(definitions)
    text_offset = _align(numbers_offset + len(numbers), 16)
    constants_offset = text_offset + TRAMPOLINE_BYTES * slot_count
    text_end = constants_offset + TRAMPOLINE_BYTES * len(constants)
    is_x86 = _MACHINES[machine] == 62
    entry_offset = _align(text_end, 16) if is_x86 else None
    if entry_offset is not None:
        text_end = entry_offset + len(python_entry.CODE)
    dynamic_offset = _align(text_end, _PAGE_BYTES)
    dynamic_bytes = 16 * (_DYNAMIC_ENTRIES + (_VERSION_ENTRIES if version else 0))
    slots_offset = dynamic_offset + _align(dynamic_bytes, 16)
    table_offset = slots_offset + 8 * slot_count
    end = table_offset
    if is_x86:
        end += python_entry.RECORDS_OFFSET + python_entry.RECORD_BYTES * slot_count

    jump, constant = (_x86_jump, _x86_constant) if is_x86 else (_arm_jump, _arm_constant)
    text = b"".join(
        jump(i, text_offset + TRAMPOLINE_BYTES * i, slots_offset + 8 * i) for i in range(slot_count)
    ) + b"".join(constant(value) for value in constants)
    if entry_offset is not None:
        text = text.ljust(entry_offset - text_offset, b"\xcc")
        text += python_entry.placed(entry_offset, table_offset)

    table = bytearray(_SYMBOL_BYTES)
    for name, index in symbols.items():
        place = text_offset + TRAMPOLINE_BYTES * index
        table += _symbol(name_offsets[name], _FUNCTION, place, TRAMPOLINE_BYTES)
    table += _symbol(name_offsets[SLOTS_SYMBOL], _OBJECT, slots_offset, 8 * slot_count)

    image = bytearray(end)
    for offset, part in (
        (0, _file_header(_MACHINES[machine])),
        (
            _HEADER_BYTES,
            _program_header(_LOAD, _READ | _EXECUTE, 0, text_end, _PAGE_BYTES)
            + _program_header(
                _LOAD, _READ | _WRITE, dynamic_offset, end - dynamic_offset, _PAGE_BYTES
            )
            + _program_header(_DYNAMIC, _READ | _WRITE, dynamic_offset, dynamic_bytes, 8)
            + _program_header(_GNU_STACK, _READ | _WRITE, 0, 0, 16),
        ),
        (symbols_offset, table),
        (hash_offset, hash_table),
        (strings_offset, strings),
        (versions_offset, definitions),
        (numbers_offset, numbers),
        (text_offset, text),
        (
            dynamic_offset,
            _dynamic(
                (_DT_SONAME, name_offsets[soname]),
                (_DT_HASH, hash_offset),
                (_DT_STRTAB, strings_offset),
                (_DT_SYMTAB, symbols_offset),
                (_DT_STRSZ, len(strings)),
                (_DT_SYMENT, _SYMBOL_BYTES),
                *(
                    (
                        (_DT_VERSYM, numbers_offset),
                        (_DT_VERDEF, versions_offset),
                        (_DT_VERDEFNUM, 2),
                    )
                    if version
                    else ()
                ),
                (_DT_NULL, 0),
            ),
        ),
    ):
        image[offset : offset + len(part)] = part
    return Stub(
        bytes(image), slots_offset, text_offset, constants_offset, entry_offset, table_offset
    )


# Machine code


def _x86_jump(index: int, place: int, slot: int) -> bytes:
    """endbr64; mov $index, %r11d; jmp *slot(%rip)."""
    return b"\xf3\x0f\x1e\xfa\x41\xbb" + struct.pack(
        "<IHi", index, 0x25FF, slot - (place + TRAMPOLINE_BYTES)
    )


def _x86_constant(value: int) -> bytes:
    """endbr64; mov $value, %eax; ret."""
    return (b"\xf3\x0f\x1e\xfa\xb8" + struct.pack("<i", value) + b"\xc3").ljust(16, b"\xcc")


def _arm_jump(_index: int, place: int, slot: int) -> bytes:
    """Adrp x16, slot; ldr x16, [x16, slot's low bits]; br x16."""
    pages = (slot >> 12) - (place >> 12)
    adrp = 0x90000010 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    load = 0xF9400210 | ((slot & 0xFFF) >> 3) << 10
    return struct.pack("<4I", adrp, load, 0xD61F0200, _ARM_NOP)


def _arm_constant(value: int) -> bytes:
    """Movz w0, value; ret."""
    return struct.pack("<4I", 0x52800000 | value << 5, 0xD65F03C0, _ARM_NOP, _ARM_NOP)


_ARM_NOP: Final = 0xD503201F

# ELF structures and numbers

_LOAD, _DYNAMIC, _GNU_STACK = 1, 2, 0x6474E551
_EXECUTE, _WRITE, _READ = 1, 2, 4
_DT_NULL, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = (
    0,
    4,
    5,
    6,
    10,
    11,
    14,
)
_DT_VERSYM, _DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
_OBJECT, _FUNCTION = 0x11, 0x12  # global binding


def _file_header(machine: int) -> bytes:
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    shared_object = 3
    return identity + struct.pack(
        "<HHIQQQIHHHHHH",
        shared_object,
        machine,
        1,
        0,
        _HEADER_BYTES,
        0,
        0,
        _HEADER_BYTES,
        _PROGRAM_HEADER_BYTES,
        _PROGRAM_HEADERS,
        64,
        0,
        0,
    )


def _program_header(kind: int, flags: int, offset: int, size: int, align: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, flags, offset, offset, offset, size, size, align)


def _symbol(name: int, info: int, value: int, size: int) -> bytes:
    # Any section index but 0 means "defined here". There are no sections to point to.
    return _pack_symbol(name, info, 0, 1, value, size)


_pack_symbol = struct.Struct("<IBBHQQ").pack


def _hash_table(names: Sequence[str]) -> bytes:
    """As many buckets as names: libraries that are loaded later look up their symbols here."""
    buckets, chain = [0] * len(names), [0]
    for index, name in enumerate(names, 1):
        bucket = _hash(name.encode()) % len(buckets)
        chain.append(buckets[bucket])
        buckets[bucket] = index
    header = struct.pack("<II", len(buckets), len(chain))
    return header + struct.pack(f"<{len(buckets) + len(chain)}I", *buckets, *chain)


def _hash(name: bytes) -> int:
    """The hash function of the System V gABI."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        if value > 0x0FFFFFFF:
            value = value & 0x0FFFFFFF ^ value >> 24 & 0xF0
    return value


def _version_definitions(base: tuple[str, int], version: tuple[str, int]) -> bytes:
    """The version of the library itself, number 1, and the version of its symbols, number 2.

    Layout of Elf64_Verdef and Elf64_Verdaux: Linux Standard Base, "Symbol Versioning".
    """
    head_bytes, is_base = 20, 1
    parts = []
    for number, (name, offset) in enumerate((base, version), 1):
        flags = is_base if number == 1 else 0
        following = head_bytes + 8 if number == 1 else 0
        parts.append(
            struct.pack(
                "<HHHHIII", 1, flags, number, 1, _hash(name.encode()), head_bytes, following
            )
            + struct.pack("<II", offset, 0)
        )
    return b"".join(parts)


def _version_numbers(symbol_count: int) -> bytes:
    """The version of each symbol: none for the null symbol, number 2 for all others."""
    return struct.pack(f"<{symbol_count}H", 0, *[2] * (symbol_count - 1))


def _dynamic(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<QQ", *entry) for entry in entries)


def _string_table(names: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    table = bytearray(1)
    offsets = {}
    for name in names:
        offsets[name] = len(table)
        table += name.encode() + b"\0"
    return bytes(table), offsets


def _align(offset: int, to: int) -> int:
    return -(-offset // to) * to
