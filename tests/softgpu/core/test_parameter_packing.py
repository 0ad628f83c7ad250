"""Arguments of a launch, from pointers to a parameter block."""

from __future__ import annotations

import ctypes
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.modules.parameter_packing import Packing


def places_of(sizes: list[int]) -> tuple[list[tuple[int, int]], int]:
    """Each parameter at a multiple of its size, as PTX lays them out, and the end of the last
    one."""
    places, end = [], 0
    for size in sizes:
        start = -(-end // size) * size
        places.append((start, size))
        end = start + size
    return places, end


class Arguments:
    """Values somewhere in memory, and the array of pointers to them."""

    def __init__(self, starts: list[int], values: list[bytes]) -> None:
        end = max(start + len(value) for start, value in zip(starts, values, strict=True))
        self.memory = (ctypes.c_ubyte * end)()
        self.base = ctypes.addressof(self.memory)
        self._starts = starts
        self.array = (ctypes.c_uint64 * len(starts))(*(self.base + start for start in starts))
        self.address = ctypes.addressof(self.array)
        self.write(values)

    def write(self, values: list[bytes]) -> None:
        for start, value in zip(self._starts, values, strict=True):
            ctypes.memmove(self.base + start, value, len(value))


def found(places: list[tuple[int, int]], block: bytes) -> list[bytes]:
    return [block[start : start + size] for start, size in places]


@given(
    st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=6),
    st.booleans(),
    st.integers(0, 3),
    st.data(),
)
def test_a_block_has_the_values_of_the_moment_wherever_they_lie(sizes, lies_alike, rest, data):
    places, end = places_of(sizes)
    packing = Packing("kernel", places, end + rest)
    starts = [start for start, _ in places]
    if not lies_alike:
        # Spread the values, in another order.
        starts = [16 * index for index in data.draw(st.permutations(range(len(sizes))))]
    first = [data.draw(st.binary(min_size=size, max_size=size)) for size in sizes]
    arguments = Arguments(starts, first)
    for _ in range(3):
        values = [data.draw(st.binary(min_size=size, max_size=size)) for size in sizes]
        arguments.write(values)
        block = packing.pack(arguments.address)
        assert len(block) == end + rest
        assert found(places, block) == values


def test_pointers_that_change_in_their_array_are_seen():
    packing = Packing("kernel", [(0, 8), (8, 4)], 12)
    one = Arguments([0, 8], [struct.pack("<Q", 1), struct.pack("<I", 2)])
    other = Arguments([0, 8], [struct.pack("<Q", 3), struct.pack("<I", 4)])
    assert struct.unpack("<QI", packing.pack(one.address)) == (1, 2)
    assert struct.unpack("<QI", packing.pack(one.address)) == (1, 2)
    one.array[0], one.array[1] = other.array[0], other.array[1]
    assert struct.unpack("<QI", packing.pack(one.address)) == (3, 4)


def test_a_null_pointer_is_refused_each_time():
    packing = Packing("k", [(0, 8), (8, 4)], 12)
    arguments = Arguments([0, 8], [bytes(8), bytes(4)])
    packing.pack(arguments.address)
    arguments.array[1] = 0
    for _ in range(2):
        with pytest.raises(DriverFailure, match="kernel k: kernelParams has a null pointer"):
            packing.pack(arguments.address)


def test_a_kernel_without_parameters_has_an_empty_block():
    assert Packing("k", [], 0).pack(ctypes.addressof(ctypes.c_uint64())) == b""
