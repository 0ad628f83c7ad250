"""Unwritten or freed memory is a NaN, in whatever float type it is read."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import numpy as np
import pytest
from cuda.bindings import driver
from helpers.driver.call_results import ok
from helpers.lowering import bare_launch

import cudasync as cs
from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.core.machine import Machine
from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.core.memory.arena import Arena
from cudasync.softgpu.interface.poison import PATTERN, poison, poison_fresh, poison_pages
from cudasync.testing import explore

# By name: bits of an element, of its exponent, and of its mantissa. A NaN has an exponent of all
# ones and a nonzero mantissa; e4m3 has a single NaN, of all ones.
FORMATS = {
    "f16": (16, 5, 10), "bf16": (16, 8, 7), "f32": (32, 8, 23), "f64": (64, 11, 52),
    "e5m2": (8, 5, 2),
}  # fmt: skip
SIZES = [1, 2, 7, 256, 1000, (256 << 10) + 5, (1 << 20) + 1]


def nans(data: bytes, name: str) -> np.ndarray:
    bits, exponent, mantissa = FORMATS[name]
    words = np.frombuffer(data[: len(data) // 8 * 8], f"u{bits // 8}")
    ones = (1 << exponent) - 1
    return (words >> mantissa & ones == ones) & (words & (1 << mantissa) - 1 != 0)


@pytest.mark.parametrize("name", FORMATS)
def test_poison_is_a_nan_in_every_format(name):
    assert nans(PATTERN * 32, name).all()


def test_a_byte_in_two_is_a_nan_in_e4m3():
    assert (np.frombuffer(PATTERN * 8, np.uint8) & 0x7F == 0x7F).mean() == 0.5


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_poison_is_no_likely_integer(kind):
    limits = np.iinfo(kind)
    likely = {0, 1, -1, limits.min, limits.max, limits.max - 1}
    words = np.frombuffer(PATTERN * 32, kind)
    small = abs(words.astype(object)) < 2 ** (limits.bits - 2)
    # A byte has too few values for an unlikely one, and a float's sign byte is 0x7f or 0xff.
    assert kind[1] == "1" or not (likely & set(words.tolist()) or small.any())
    assert -1 not in words.tolist()
    assert 0 not in words.tolist()


def test_another_pattern_would_be_noticed():
    assert not nans(b"\xa5" * 64, "f32").any()
    assert not nans(b"\xff\xa5" * 32, "f64").all()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("start", [0, 1, 2, 7])
def test_every_byte_is_filled_and_no_other(size, start):
    memory = ctypes.create_string_buffer(b"\1" * (size + 64))
    base = -ctypes.addressof(memory) % 8 + start
    poison(ctypes.addressof(memory) + base, size)
    even = PATTERN * (size // 2 + 1)
    assert memory.raw[base : base + size] == even[start % 2 : start % 2 + size]
    assert set(memory.raw[:base] + memory.raw[base + size : size + 64]) == {1}


@pytest.mark.parametrize("fill", [poison_pages, poison_fresh])
@pytest.mark.parametrize("size", [(64 << 20) + 1, (65 << 20) + 4097])
@pytest.mark.parametrize("offset", [0, 256, mmap.PAGESIZE])
def test_large_blocks_are_poison_whole_again_and_again(size, offset, fill):
    arena = Arena(1 << 28)
    start = arena.base + offset
    around = (arena.base + offset + size, 256)
    ctypes.memset(around[0], 1, around[1])
    whole = size // 8 * 8
    (word,) = np.frombuffer(PATTERN * 4, np.uint64)
    for _ in range(2):
        fill(start, size)
        found = np.frombuffer((ctypes.c_char * size).from_address(start), np.uint8)
        assert (found[:whole].view(np.uint64) == word).all()
        assert found[whole:].tobytes() == (PATTERN * 4)[: size - whole]
        found[size // 2] = 1
        found[-1] = 1
    assert ctypes.string_at(*around) == b"\1" * around[1]


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_a_large_block_takes_memory_where_it_is_written_alone():
    size = 96 << 20
    start = Arena(1 << 28).reserve(size)
    poison_pages(start, size)
    before = resident_bytes()
    ctypes.memset(start, 1, size)
    written = resident_bytes()
    poison_pages(start, size)
    freed = resident_bytes()
    assert written - before > size // 2
    assert written - freed > size // 2


def test_the_largest_fresh_blocks_take_no_memory():
    size = 320 << 20
    start = Arena(1 << 29).reserve(size)
    before = resident_bytes()
    poison_fresh(start, size)
    assert resident_bytes() - before < size // 8
    assert ctypes.string_at(start + size // 2, 2) == PATTERN


def read(address, size):
    back = ctypes.create_string_buffer(size)
    ok(driver.cuMemcpyDtoH(ctypes.addressof(back), address, size))
    return back.raw


def ordered(size):
    address = ok(driver.cuMemAllocAsync(size, 0))
    ok(driver.cuStreamSynchronize(0))
    return address


ALLOCATIONS = {
    "device": lambda size: ok(driver.cuMemAlloc(size)),
    "in stream order": ordered,
    "pinned": lambda size: ok(driver.cuMemHostAlloc(size, 0)),
}


@pytest.mark.parametrize("how", ALLOCATIONS)
def test_fresh_memory_is_poison(context, how):
    found = read(int(ALLOCATIONS[how](1000)), 1000)
    for name in FORMATS:
        assert nans(found, name).all()


LARGE = (64 << 20) + 1000


@pytest.mark.parametrize(("size", "rounds"), [(1000, 100), (LARGE, 5)])
def test_managed_memory_is_zero_when_fresh_and_when_it_comes_again(size, rounds):
    machine = Machine(total_bytes=max(2 * size, 1 << 16))
    machine.push(machine.retain_primary(machine.device(0)))
    starts = set()
    for _ in range(rounds):
        start = machine.memory.allocate_host(size, MemoryKind.MANAGED).start
        found = np.frombuffer((ctypes.c_char * size).from_address(start), np.uint8)
        assert not found.any()
        found[:] = 1
        machine.memory.free(start)
        starts.add(start)
    assert len(starts) < rounds
    machine.end()


def test_large_allocations_are_poison_when_fresh_and_when_freed():
    size = LARGE
    machine = Machine(total_bytes=1 << 28)
    machine.push(machine.retain_primary(machine.device(0)))
    stream = machine.streams.create(1)
    for start, free in (
        (machine.memory.allocate_device(size).start, machine.memory.free),
        (
            machine.memory.allocate_async(size, stream).start,
            lambda start: machine.memory.free_async(start, stream),
        ),
    ):
        machine.streams.synchronize(stream)
        found = np.frombuffer((ctypes.c_char * size).from_address(start), np.uint8)
        assert nans(found, "f64").all()
        found[:] = 0
        free(start)
        machine.streams.synchronize(stream)
        assert nans(found, "f64").all()
    machine.end()


READS = """
.version 7.0
.target sm_75
.address_size 64
.extern .shared .align 16 .b8 added[];
.visible .entry test(.param .u64 result)
{
    .shared .align 8 .b8 declared[24];
    .local .align 8 .b8 own[24];
    .reg .u32 %thread, %place;
    .reg .b64 %word;
    .reg .u64 %rd_result;
    ld.param.u64 %rd_result, [result];
    mov.u32 %thread, %tid.x;
    mad.wide.u32 %rd_result, %thread, 24, %rd_result;
    ld.shared.b64 %word, [declared+16];
    st.global.b64 [%rd_result], %word;
    mov.u32 %place, added;
    ld.shared.b64 %word, [%place+80];
    st.global.b64 [%rd_result+8], %word;
    ld.local.b64 %word, [own+8];
    st.global.b64 [%rd_result+16], %word;
    BARRIER
    ret;
}
"""


@pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])
@pytest.mark.parametrize("barrier", ["", "bar.sync 0; st.shared.b64 [declared], %word;"])
def test_shared_and_local_memory_of_a_kernel_is_poison(room, barrier):
    module = room.compile_module(parse(READS.replace("BARRIER", barrier)))
    result = bare_launch.aligned(np.zeros((40, 3), np.uint64))
    options = {"grid": (1,), "block": (40,), "shared_bytes": 88, "args": [result]}
    assert bare_launch.run(module, "test", **options).fault is None
    for name in FORMATS:
        assert nans(result.tobytes(), name).all()


TOTAL = """
.version 7.0
.target sm_75
.address_size 64
.visible .entry total(.param .u64 values, .param .u64 sum, .param .u32 count)
{
    .reg .u32 %index, %count, %block, %size;
    .reg .f32 %value;
    .reg .u64 %rd_values, %rd_sum;
    .reg .pred %is_behind;
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %index, %tid.x;
    mad.lo.u32 %index, %block, %size, %index;
    ld.param.u32 %count, [count];
    setp.ge.u32 %is_behind, %index, %count;
    @%is_behind ret;
    ld.param.u64 %rd_values, [values];
    ld.param.u64 %rd_sum, [sum];
    mad.wide.u32 %rd_values, %index, 4, %rd_values;
    ld.global.f32 %value, [%rd_values];
    red.global.add.f32 [%rd_sum], %value;
    ret;
}
"""


def sum_into(begin):
    kernel = cs.Module.from_ptx(TOTAL).kernel("total")
    values, out = cs.array(np.ones(1024, np.float32)), begin((1,))
    kernel[4, 256](values, out, 1024)
    assert out.numpy()[0] == 1024


def test_a_sum_that_begins_in_empty_memory_is_found():
    with pytest.raises(AssertionError):
        sum_into(cs.empty)
    sum_into(cs.zeros)


def test_a_sum_that_begins_in_empty_memory_is_found_in_every_order():
    with pytest.raises(AssertionError):
        explore(lambda: sum_into(cs.empty))
    explore(lambda: sum_into(cs.zeros))
