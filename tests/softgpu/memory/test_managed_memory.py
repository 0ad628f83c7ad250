"""Managed memory: advice is kept page by page, and senseless calls are refused."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver
from helpers.driver.call_results import IS_CUDA_12, cuda13, message, ok
from hypothesis import given
from hypothesis import strategies as st

from cudasync.softgpu.core.memory.managed_memory import Advice, Pages
from cudasync.softgpu.interface.poison import PATTERN

R = driver.CUresult
ADVISE = driver.CUmem_advise
RANGE = driver.CUmem_range_attribute
PAGE = 4096


def place(number=0):
    """The location of a device, or of the host."""
    where = driver.CUmemLocation()
    kinds = driver.CUmemLocationType
    is_device = number >= 0
    where.type = kinds.CU_MEM_LOCATION_TYPE_DEVICE if is_device else kinds.CU_MEM_LOCATION_TYPE_HOST
    where.id = max(0, number)
    return where


@pytest.fixture
def memory(context):
    return int(ok(driver.cuMemAllocManaged(4 * PAGE, 1)))


def asked(address, size, attribute, room=4):
    return ok(driver.cuMemRangeGetAttribute(room, attribute, address, size))


def test_advice_holds_for_the_pages_it_was_given_for(memory):
    ok(cuda13.cuMemAdvise(memory, 2 * PAGE, ADVISE.CU_MEM_ADVISE_SET_READ_MOSTLY, place()))
    kind = RANGE.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY
    assert asked(memory, 2 * PAGE, kind) == 1
    assert asked(memory, 2 * PAGE + 1, kind) == 0
    ok(cuda13.cuMemAdvise(memory, 1, ADVISE.CU_MEM_ADVISE_UNSET_READ_MOSTLY, place()))
    assert asked(memory + PAGE, PAGE, kind) == 1
    assert asked(memory, PAGE, kind) == 0


def test_a_preferred_location_and_a_prefetch_are_told_again(memory):
    preferred = RANGE.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION
    prefetched = RANGE.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION
    assert asked(memory, PAGE, preferred) == asked(memory, PAGE, prefetched) == -2
    ok(cuda13.cuMemAdvise(memory, PAGE, ADVISE.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place(-1)))
    ok(cuda13.cuMemPrefetchAsync(memory, 4 * PAGE, place(), 0, 0))
    assert asked(memory, PAGE, preferred) == -1
    assert asked(memory, 2 * PAGE, preferred) == -2
    assert asked(memory, 4 * PAGE, prefetched) == 0


@pytest.mark.skipif(IS_CUDA_12, reason="these bindings cannot ask for it")
def test_of_a_preferred_location_the_type_is_told(memory):
    ok(cuda13.cuMemAdvise(memory, PAGE, ADVISE.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place(-1)))
    kind = RANGE.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE
    host = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    assert int(asked(memory, PAGE, kind)) == int(host)


def test_those_who_access_memory_are_listed_devices_first(memory):
    for number in (-1, 0):
        ok(cuda13.cuMemAdvise(memory, PAGE, ADVISE.CU_MEM_ADVISE_SET_ACCESSED_BY, place(number)))
    kind = RANGE.CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY
    assert list(asked(memory, PAGE, kind, 12)) == [0, -1, -2]
    ok(cuda13.cuMemAdvise(memory, PAGE, ADVISE.CU_MEM_ADVISE_UNSET_ACCESSED_BY, place(-1)))
    assert list(asked(memory, PAGE, kind, 8)) == [0, -2]
    kinds = [RANGE.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, kind]
    found = ok(driver.cuMemRangeGetAttributes([4, 4], kinds, 2, memory, PAGE))
    assert [int(found[0]), *map(int, found[1])] == [0, 0]


def test_what_is_not_managed_is_refused(context, memory):
    device = ok(driver.cuMemAlloc(PAGE))
    advice = ADVISE.CU_MEM_ADVISE_SET_READ_MOSTLY
    for code, *_ in (
        cuda13.cuMemAdvise(device, PAGE, advice, place()),
        cuda13.cuMemAdvise(memory, 5 * PAGE, advice, place()),
        cuda13.cuMemAdvise(memory, 0, advice, place()),
        cuda13.cuMemPrefetchAsync(device, PAGE, place(), 0, 0),
        driver.cuMemRangeGetAttribute(4, RANGE.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, device, 1),
        driver.cuStreamAttachMemAsync(0, device, 0, 1),
    ):
        assert code == R.CUDA_ERROR_INVALID_VALUE
    assert "is not managed memory" in message(R.CUDA_ERROR_INVALID_VALUE)
    code = cuda13.cuMemPrefetchAsync(memory, PAGE, place(7), 0, 0)[0]
    assert code == R.CUDA_ERROR_INVALID_DEVICE


def test_memory_is_attached_whole_and_to_a_stream_of_ones_own(memory):
    stream = ok(driver.cuStreamCreate(1))
    single = driver.CUmemAttach_flags.CU_MEM_ATTACH_SINGLE
    ok(driver.cuStreamAttachMemAsync(stream, memory, 0, single))
    invalid = R.CUDA_ERROR_INVALID_VALUE
    assert driver.cuStreamAttachMemAsync(0, memory, 0, single)[0] == invalid
    assert driver.cuStreamAttachMemAsync(stream, memory, PAGE, single)[0] == invalid
    assert driver.cuStreamAttachMemAsync(stream, memory, 0, 3)[0] == invalid


@pytest.mark.skipif(
    not hasattr(driver, "cuMemDiscardBatchAsync"), reason="these bindings do not have it yet"
)
def test_what_is_discarded_may_be_anything(memory):
    stream = ok(driver.cuStreamCreate(1))
    ok(driver.cuMemsetD8Async(memory, 1, 2 * PAGE, stream))
    ok(driver.cuMemDiscardBatchAsync([driver.CUdeviceptr(memory)], [PAGE], 1, 0, stream))
    ok(
        driver.cuMemPrefetchBatchAsync(
            [driver.CUdeviceptr(memory)], [PAGE], 1, [place()], [0], 1, 0, stream
        )
    )
    ok(driver.cuStreamSynchronize(stream))
    assert asked(memory, PAGE, RANGE.CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION) == 0
    back = ctypes.create_string_buffer(2 * PAGE)
    ok(driver.cuMemcpyDtoH(ctypes.addressof(back), memory, 2 * PAGE))
    assert back.raw == PATTERN * (PAGE // 2) + b"\1" * PAGE


SPANS = st.tuples(st.integers(0, 20 * PAGE - 1), st.integers(1, 6 * PAGE), st.booleans())


@given(st.lists(SPANS, max_size=12), st.integers(0, 19 * PAGE), st.integers(1, PAGE * 9))
def test_pages_keep_what_a_table_of_pages_would(changes, start, size):
    base = 5 * PAGE + 256
    end = base + 20 * PAGE
    pages = Pages(base, end)
    table = dict.fromkeys(range(20), Advice())
    for offset, length, value in changes:
        first, last = base + offset, min(end, base + offset + length)
        pages.change(first, last, lambda said, value=value: Advice(is_read_mostly=value))
        for page in range((first - base) // PAGE, -(-(last - base) // PAGE)):
            table[page] = Advice(is_read_mostly=value)
    first, last = base + start, min(end, base + start + size)
    expected = {table[page] for page in range((first - base) // PAGE, -(-(last - base) // PAGE))}
    assert pages.said(first, last) == expected
