"""Virtual memory: reserve, create, map, set access; and the result code of each misuse."""

from __future__ import annotations

import ctypes
import os
import textwrap

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import message, ok
from helpers.driver.driver_process import run_driver

from cudasync.softgpu.interface.poison import PATTERN

R = driver.CUresult
MIB = 1 << 20
UNIT = 2 * MIB
READ_WRITE = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
NONE = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_NONE


def properties(shared=0, number=0):
    what = driver.CUmemAllocationProp()
    what.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    what.requestedHandleTypes = driver.CUmemAllocationHandleType(shared)
    what.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    what.location.id = number
    return what


def grant(flags=READ_WRITE, number=0):
    what = driver.CUmemAccessDesc()
    what.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    what.location.id = number
    what.flags = flags
    return what


@pytest.fixture
def space(context):
    """Four units of addresses, which the fixture unmaps and frees afterwards."""
    start = int(ok(driver.cuMemAddressReserve(4 * UNIT, 0, 0, 0)))
    yield start
    for unit in range(4):
        driver.cuMemUnmap(start + unit * UNIT, UNIT)
    ok(driver.cuMemAddressFree(start, 4 * UNIT))


def mapped(address, size=UNIT, access=True):
    memory = ok(driver.cuMemCreate(size, properties(), 0))
    ok(driver.cuMemMap(address, size, 0, memory, 0))
    if access:
        ok(driver.cuMemSetAccess(address, size, [grant()], 1))
    return memory


def read(address, size):
    back = ctypes.create_string_buffer(size)
    ok(driver.cuMemcpyDtoH(ctypes.addressof(back), address, size))
    return back.raw


def test_the_granularity_is_what_sizes_must_be_multiples_of(context):
    for option in driver.CUmemAllocationGranularity_flags:
        assert ok(driver.cuMemGetAllocationGranularity(properties(), option)) == UNIT
    assert driver.cuMemAddressReserve(UNIT + 1, 0, 0, 0)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert driver.cuMemCreate(MIB, properties(), 0)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert "multiples of 2097152" in message(R.CUDA_ERROR_INVALID_VALUE)


def test_a_vector_grows_in_place(space):
    """The MMAP examples do the same: the copy and the fill cross two mappings."""
    first = mapped(space)
    ok(driver.cuMemsetD32(space, 7, UNIT // 4))
    second = mapped(space + UNIT)
    ok(driver.cuMemcpyDtoD(space + UNIT - 8, space, 16))
    assert read(space + UNIT - 8, 16) == bytes([7, 0, 0, 0] * 4)
    ok(driver.cuMemsetD8(space, 1, 2 * UNIT))
    assert read(space + UNIT - 1, 2) == b"\1\1"
    for memory in (first, second):
        ok(driver.cuMemRelease(memory))
    assert read(space, 1) == b"\1"


def test_memory_is_moved_to_another_address_with_its_contents(space):
    memory = mapped(space)
    ok(driver.cuMemsetD8(space, 3, UNIT))
    again = ok(driver.cuMemRetainAllocationHandle(space + 100))
    assert int(again) == int(memory)
    ok(driver.cuMemUnmap(space, UNIT))
    ok(driver.cuMemMap(space + 2 * UNIT, UNIT, 0, again, 0))
    ok(driver.cuMemSetAccess(space + 2 * UNIT, UNIT, [grant()], 1))
    assert read(space + 2 * UNIT, 2) == b"\3\3"
    ok(driver.cuMemRelease(memory))
    ok(driver.cuMemRelease(again))
    assert driver.cuMemRelease(memory)[0] == R.CUDA_ERROR_INVALID_VALUE


def test_two_addresses_may_show_the_same_memory(space):
    memory = mapped(space)
    ok(driver.cuMemMap(space + UNIT, UNIT, 0, memory, 0))
    ok(driver.cuMemSetAccess(space + UNIT, UNIT, [grant()], 1))
    ok(driver.cuMemsetD8(space, 9, 16))
    assert read(space + UNIT, 16) == bytes([9] * 16)
    ok(driver.cuMemRelease(memory))


def test_fresh_memory_is_poison_and_memory_is_given_back(context):
    before, _ = ok(driver.cuMemGetInfo())
    memory = ok(driver.cuMemCreate(UNIT, properties(), 0))
    assert ok(driver.cuMemGetInfo())[0] == before - UNIT
    start = int(ok(driver.cuMemAddressReserve(UNIT, 0, 0, 0)))
    ok(driver.cuMemMap(start, UNIT, 0, memory, 0))
    ok(driver.cuMemSetAccess(start, UNIT, [grant()], 1))
    assert read(start, UNIT) == PATTERN * (UNIT // 2)
    ok(driver.cuMemRelease(memory))
    assert ok(driver.cuMemGetInfo())[0] == before - UNIT
    ok(driver.cuMemUnmap(start, UNIT))
    ok(driver.cuMemAddressFree(start, UNIT))
    assert ok(driver.cuMemGetInfo())[0] == before


def test_more_memory_than_there_is_is_refused():
    # In its own process: where other tests have memory in the middle, no free piece is this large.
    program = """
    free, total = ok(d.cuMemGetInfo())
    memory = ok(d.cuMemCreate(64 * unit, properties(0), 0))
    print(code(d.cuMemAlloc(free - 63 * unit)), said(R.CUDA_ERROR_OUT_OF_MEMORY))
    ok(d.cuMemRelease(memory))
    ok(d.cuMemFree(ok(d.cuMemAlloc(free - 63 * unit))))
    print(code(d.cuMemCreate(total + unit, properties(0), 0)))
    print(code(d.cuMemAddressReserve(1 << 41, 0, 0, 0)))
    """
    first, *others = run_driver(FAULTS + textwrap.dedent(program), devices=2).splitlines()
    assert first.startswith("OUT_OF_MEMORY")
    assert first.endswith("in use by cuMemCreate")
    assert others == ["OUT_OF_MEMORY"] * 2


def test_an_address_can_be_wished_for(space):
    ok(driver.cuMemAddressFree(space, 4 * UNIT))
    wish = space + 8 * UNIT
    start = int(ok(driver.cuMemAddressReserve(UNIT, 0, wish, 0)))
    assert start == wish
    other = int(ok(driver.cuMemAddressReserve(UNIT, 0, wish, 0)))
    assert other != wish
    aligned = int(ok(driver.cuMemAddressReserve(UNIT, 64 * MIB, 0, 0)))
    assert aligned % (64 * MIB) == 0
    for each in (start, other, aligned):
        ok(driver.cuMemAddressFree(each, UNIT))
    assert int(ok(driver.cuMemAddressReserve(4 * UNIT, 0, space, 0))) == space


def test_only_what_is_whole_can_be_unmapped_or_freed(space):
    ok(driver.cuMemRelease(mapped(space, 2 * UNIT)))
    for address, size in ((space, UNIT), (space + UNIT, UNIT), (space, 3 * UNIT), (space, 0)):
        assert driver.cuMemUnmap(address, size)[0] == R.CUDA_ERROR_INVALID_VALUE
    code = driver.cuMemSetAccess(space, UNIT, [grant()], 1)[0]
    assert code == R.CUDA_ERROR_INVALID_VALUE
    assert driver.cuMemAddressFree(space, 4 * UNIT)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert "mapped in the reservation" in message(R.CUDA_ERROR_INVALID_VALUE)
    assert driver.cuMemAddressFree(space, UNIT)[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuMemUnmap(space, 2 * UNIT))


def test_nothing_is_mapped_twice_or_outside_of_a_reservation(space):
    memory = mapped(space)
    for address, size, offset in (
        (space, UNIT, 0),
        (space + 4 * UNIT, UNIT, 0),
        (space + UNIT, 2 * UNIT, 0),
        (space + UNIT, UNIT, UNIT),
        (space + MIB, UNIT, 0),
    ):
        assert driver.cuMemMap(address, size, offset, memory, 0)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert driver.cuMemFree(space)[0] == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuMemRelease(memory))


def test_copies_are_refused_where_nothing_is_mapped_or_allowed(space):
    ok(driver.cuMemRelease(mapped(space, access=False)))
    assert driver.cuMemsetD8(space, 1, 16)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert "no device has access" in message(R.CUDA_ERROR_INVALID_VALUE)
    ok(driver.cuMemSetAccess(space, UNIT, [grant()], 1))
    assert driver.cuMemsetD8(space, 1, UNIT + 1)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert "is reserved, but nothing is mapped" in message(R.CUDA_ERROR_INVALID_VALUE)
    assert driver.cuMemsetD8(space + 4 * UNIT, 1, 1)[0] == R.CUDA_ERROR_INVALID_VALUE
    assert "is not reserved" in message(R.CUDA_ERROR_INVALID_VALUE)
    there = driver.CUmemLocation()
    there.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    assert ok(driver.cuMemGetAccess(there, space)) == int(READ_WRITE)
    ok(driver.cuMemSetAccess(space, UNIT, [grant(NONE)], 1))
    assert ok(driver.cuMemGetAccess(there, space)) == int(NONE)


def test_what_memory_is_can_be_asked(space):
    memory = mapped(space)
    found = ok(driver.cuMemGetAllocationPropertiesFromHandle(memory))
    assert found.location.id == 0
    assert found.type == driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    kinds = driver.CUpointer_attribute
    for attribute, value in (
        (kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2),
        (kinds.CU_POINTER_ATTRIBUTE_CONTEXT, 0),
        (kinds.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 0),
    ):
        assert int(ok(driver.cuPointerGetAttribute(attribute, space + 5))) == value
    ok(driver.cuMemRelease(memory))


def test_memory_goes_to_another_process_as_a_file_descriptor(space):
    kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    memory = ok(driver.cuMemCreate(UNIT, properties(1), 0))
    ok(driver.cuMemMap(space, UNIT, 0, memory, 0))
    ok(driver.cuMemSetAccess(space, UNIT, [grant()], 1))
    descriptor = ok(driver.cuMemExportToShareableHandle(memory, kind, 0))
    other = ok(driver.cuMemImportFromShareableHandle(int(descriptor), kind))
    os.close(int(descriptor))
    ok(driver.cuMemMap(space + UNIT, UNIT, 0, other, 0))
    ok(driver.cuMemSetAccess(space + UNIT, UNIT, [grant()], 1))
    ok(driver.cuMemsetD8(space, 5, 16))
    assert read(space + UNIT, 16) == bytes([5] * 16)
    for each in (memory, other):
        ok(driver.cuMemRelease(each))
    code = driver.cuMemImportFromShareableHandle(0, kind)[0]
    assert code == R.CUDA_ERROR_INVALID_VALUE
    private = ok(driver.cuMemCreate(UNIT, properties(), 0))
    code = driver.cuMemExportToShareableHandle(private, kind, 0)[0]
    assert code == R.CUDA_ERROR_INVALID_VALUE
    ok(driver.cuMemRelease(private))


FAULTS = """
unit = 2 << 20
def properties(number):
    what = d.CUmemAllocationProp()
    what.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    what.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    what.location.id = number
    return what
def grant(number):
    what = d.CUmemAccessDesc()
    what.location = properties(number).location
    what.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return what
start = int(ok(d.cuMemAddressReserve(2 * unit, 0, 0, 0)))
memory = [ok(d.cuMemCreate(unit, properties(number), 0)) for number in range(2)]
ok(d.cuMemMap(start, unit, 0, memory[0], 0))
ok(d.cuMemSetAccess(start, unit, [grant(0)], 1))
"""


def test_a_kernel_uses_mapped_memory_and_is_told_where_it_may_not_go():
    program = """
    ok(d.cuMemMap(start + unit, unit, 0, memory[0], 0))
    ok(d.cuMemSetAccess(start + unit, unit, [grant(0)], 1))
    ok(set_word(start + unit + 4, 77))
    ok(d.cuMemUnmap(start + unit, unit))  # Waits for it.
    print(read(start, 8)[4])
    def fault(offset):
        ok(set_word(start + offset, 1))
        print(code(d.cuCtxSynchronize()), said(R.CUDA_ERROR_ILLEGAL_ADDRESS))
        ok(d.cuDevicePrimaryCtxReset(0))
    fault(unit)
    fault(2 * unit)
    ok(d.cuMemMap(start + unit, unit, 0, memory[1], 0))
    ok(d.cuMemSetAccess(start + unit, unit, [grant(1)], 1))
    fault(unit + 8)
    ok(d.cuMemUnmap(start, unit))
    fault(0)
    """
    out = run_driver(FAULTS + textwrap.dedent(program), devices=2).splitlines()
    assert out[0] == "77"
    for line, said in zip(
        out[1:],
        (
            "is reserved, but nothing is mapped there any more: mapped memory",
            "is not reserved",
            "the device has no access to mapped memory of 2097152 bytes",
            "is reserved, but nothing is mapped there any more: mapped memory",
        ),
        strict=True,
    ):
        assert line.startswith("ILLEGAL_ADDRESS an illegal memory access was encountered: kernel")
        assert said in line


def test_thousands_of_pieces_need_no_descriptors_each():
    program = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    pieces = [ok(d.cuMemCreate(unit, properties(0), 0)) for _ in range(100)]
    for piece in pieces[::2]:
        ok(d.cuMemRelease(piece))
    pieces = pieces[1::2] + [ok(d.cuMemCreate(unit, properties(0), 0)) for _ in range(50)]
    print(len({int(piece) for piece in pieces}))
    """
    assert run_driver(FAULTS + textwrap.dedent(program), devices=2) == "100\n"
