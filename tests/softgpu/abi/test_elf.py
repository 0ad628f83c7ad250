"""The stub library: exports jump where Python says, and constants need no Python."""

from __future__ import annotations

import ctypes
import platform
import struct

import pytest

from cudasync.softgpu.abi.stub.elf import SLOTS_SYMBOL, TRAMPOLINE_BYTES, build


def load(tmp_path, stub):
    path = tmp_path / "stub.so"
    path.write_bytes(stub.image)
    library = ctypes.CDLL(str(path))
    slots = ctypes.c_uint64.in_dll(library, SLOTS_SYMBOL)
    return library, ctypes.addressof(slots) - stub.slots_offset


def test_an_export_calls_what_its_slot_holds(tmp_path):
    stub = build({"first": 0, "second": 1}, 4, (3,), machine=platform.machine())
    library, base = load(tmp_path, stub)
    slots = (ctypes.c_uint64 * 4).from_address(base + stub.slots_offset)
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int)
    callbacks = [prototype(lambda a, b: a + b), prototype(lambda a, b: a * b)]
    for index, callback in enumerate(callbacks):
        slots[index] = ctypes.cast(callback, ctypes.c_void_p).value
    assert library.first(3, 4) == 7
    assert library.second(3, 4) == 12
    slots[0] = slots[1]
    assert library.first(3, 4) == 12


def test_slots_without_a_name_and_constants_are_reached_by_address(tmp_path):
    stub = build({"first": 0}, 3, (3, 4), machine=platform.machine())
    _, base = load(tmp_path, stub)
    slots = (ctypes.c_uint64 * 3).from_address(base + stub.slots_offset)
    prototype = ctypes.CFUNCTYPE(ctypes.c_int)
    slots[2] = base + stub.constants_offset + TRAMPOLINE_BYTES
    assert prototype(base + stub.trampolines_offset + 2 * TRAMPOLINE_BYTES)() == 4
    assert prototype(base + stub.constants_offset)() == 3


def test_hundreds_of_names_are_all_found(tmp_path):
    names = [f"cuFunction{index}" for index in range(600)]
    slots = {name: index for index, name in enumerate(names)}
    library, _ = load(tmp_path, build(slots, 700, (), machine=platform.machine()))
    assert all(hasattr(library, name) for name in names)
    assert not hasattr(library, "cuFunction600")


def test_symbols_have_the_version_that_the_library_was_given(tmp_path):
    """A program that was linked with such a library looks its symbols up by `dlvsym`."""
    name = "libanswers.so.7"
    stub = build(
        {"first": 0, "second": 1},
        2,
        (5,),
        machine=platform.machine(),
        soname=name,
        version=name,
    )
    library, base = load(tmp_path, stub)
    slots = (ctypes.c_uint64 * 2).from_address(base + stub.slots_offset)
    slots[1] = base + stub.constants_offset
    find = ctypes.CDLL(None).dlvsym
    find.restype = ctypes.c_void_p
    find.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    address = find(library._handle, b"second", name.encode())
    assert address
    assert ctypes.CFUNCTYPE(ctypes.c_int)(address)() == library.second() == 5
    assert not find(library._handle, b"second", b"libanswers.so.8")


def test_the_aarch64_trampoline_reaches_its_slot():
    """The instructions are decoded by hand, since they cannot run here."""
    stub = build({"first": 0, "second": 1}, 1000, (4,), machine="aarch64")
    for index in (0, 1, 999):
        place = stub.trampolines_offset + TRAMPOLINE_BYTES * index
        adrp, load_, jump, _ = struct.unpack_from("<4I", stub.image, place)
        assert adrp & 0x9F00001F == 0x90000010
        pages = (adrp >> 29 & 3) | (adrp >> 5 & 0x7FFFF) << 2
        assert load_ & 0xFFC003FF == 0xF9400210
        target = ((place >> 12) + pages << 12) + (load_ >> 10 & 0xFFF) * 8
        assert target == stub.slots_offset + 8 * index
        assert jump == 0xD61F0200
    assert struct.unpack_from("<2I", stub.image, stub.constants_offset) == (0x52800080, 0xD65F03C0)
    assert struct.unpack_from("<H", stub.image, 18) == (183,)


def test_an_unknown_machine_is_refused():
    with pytest.raises(ValueError, match="no stub for vax"):
        build({}, 1, (), machine="vax")
