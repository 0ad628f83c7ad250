"""From its second time on, an access needs one comparison, which lets no wrong byte pass.

An instruction caches the range that its lanes last lay in. So these tests run blocks after a good
block, at the edges of allocations that begin and end anywhere.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from helpers.lowering.jit_launch import compiled, pack
from hypothesis import example, given
from hypothesis import strategies as st

from cudasync.softgpu.interface.launch import AllocationSnapshot, FaultKind, Launch, OutcomeKind
from cudasync.softgpu.jit.addressing.address_bounds import Reach
from cudasync.softgpu.jit.addressing.memcheck import has_room_for
from cudasync.softgpu.jit.kernel_abi.access_descriptors import SHARED_WINDOW

BYTES = 32768
LANES = 32
BLOCKS = 6
# A kernel that loads, or stores zeros, `count` elements at a time. Lanes lie `stride` apart. Each
# block begins `hop` behind the start of the block before it.
PTX = """\
.version 6.4
.target sm_75
.address_size 64
.visible .entry test(.param .u64 target, .param .u32 hop)
{{
    .reg .b{register} %v<{count}>;
    .reg .u32 %block, %hop, %lane;
    .reg .u64 %start, %address;
    ld.param.u64 %start, [target];
    ld.param.u32 %hop, [hop];
    mov.u32 %block, %ctaid.x;
    mov.u32 %lane, %tid.x;
    mad.wide.u32 %start, %block, %hop, %start;
    mad.wide.u32 %address, %lane, {stride}, %start;
{zeros}
    {access};
}}
"""


def kernel_of(what, bits, count, stride):
    register = max(bits, 16)
    values = [f"%v{n}" for n in range(count)]
    suffix = f".v{count}" if count > 1 else ""
    elements = f"{{{', '.join(values)}}}" if count > 1 else values[0]
    operands = f"{elements}, [%address]" if what == "ld" else f"[%address], {elements}"
    text = PTX.format(
        register=register,
        count=count,
        stride=stride,
        zeros="\n".join(f"    mov.b{register} {each}, 0;" for each in values),
        access=f"{what}.global{suffix}.b{bits} {operands}",
    )
    return compiled(text).kernels["test"]


def wrong_lanes(ranges, base, threads, stride, size):
    """The lanes with a wrong access, and the kind of each fault."""
    found = {}
    for lane in range(threads):
        address = base + lane * stride
        if address % size:
            found[lane] = FaultKind.MISALIGNED
        elif not any(start <= address and address + size <= end for start, end in ranges):
            found[lane] = FaultKind.ILLEGAL_ADDRESS
    return found


@st.composite
def launches(draw):
    bits = draw(st.sampled_from([8, 16, 32, 64]))
    count = draw(st.sampled_from([1, 2, 4]))
    size = bits // 8 * count
    stride = size * draw(st.sampled_from([0, 1, 1, 2]))
    threads = draw(st.sampled_from([LANES, LANES, 20]))
    hop = draw(st.sampled_from([size, stride * threads, stride * threads + 1, 8, 1]))
    begin = draw(st.integers(0, 64))
    start = begin + draw(st.sampled_from([0, 0, 1, size, -begin % size]))
    # One allocation ends at the last byte of a block, or close to it. A second one may follow.
    span = stride * (threads - 1) + size
    behind = start + draw(st.integers(0, BLOCKS)) * hop + span
    end = max(begin + 1, behind + draw(st.sampled_from([-size, -1, 0, 0, 1])))
    gap, more = draw(st.sampled_from([(1, 0), (0, 64), (1, 64), (size, 2 * span)]))
    cuts = [begin, end, end + gap, end + gap + more]
    what = draw(st.sampled_from(["ld", "st"]))
    return bits, count, stride, threads, cuts[: 4 if more else 2], hop, start, what


@given(launches())
# The last lane of the last block is a byte beyond the end; one example begins at an odd address.
@example((32, 1, 4, LANES, [0, 3 * 128 - 1], 128, 0, "ld"))
@example((32, 1, 4, LANES, [1, 3 * 128 + 3], 128, 4, "st"))
@example((64, 2, 16, LANES, [8, 8 + 4 * 512 + 8], 512, 16, "ld"))
# The lanes of a block lie in two allocations, and the second is shorter than a block.
@example((32, 1, 4, LANES, [0, 192, 192, 256], 128, 0, "ld"))
def test_who_goes_wrong_after_others_went_right_is_told(case):
    bits, count, stride, threads, cuts, hop, offset, what = case
    arena = np.zeros(BYTES, np.uint8)
    first = arena.ctypes.data + -arena.ctypes.data % 64
    # Every second interval between the cuts is an allocation.
    ranges = [(first + a, first + b) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    kernel = kernel_of(what, bits, count, stride)
    size = bits // 8 * count
    launch = Launch(
        grid=(BLOCKS, 1, 1),
        block=(threads, 1, 1),
        dynamic_shared_bytes=0,
        parameters=pack(kernel, (first + offset, hop)),
        symbols=[],
        allocations=AllocationSnapshot(ranges),
    )
    outcome = kernel.start(launch).run()
    for block in range(BLOCKS):
        base = first + offset + block * hop
        wrong = wrong_lanes(ranges, base, threads, stride, size)
        if wrong:
            assert outcome.kind is OutcomeKind.FAULT
            fault = outcome.fault
            assert fault.block == (block, 0, 0)
            assert fault.threads == tuple((lane, 0, 0) for lane in wrong)
            assert fault.kind is next(iter(wrong.values()))
            return
    assert outcome.kind is OutcomeKind.DONE


SHARED = """\
.version 6.4
.target sm_75
.address_size 64
.visible .entry test(.param .u32 offset)
{{
    .reg .b{register} %value;
    .reg .u32 %address, %lane;
    .shared .align 16 .b8 words[{length}];
    ld.param.u32 %address, [offset];
    mov.u32 %lane, %tid.x;
    mad.lo.u32 %address, %lane, {stride}, %address;
    mov.b{register} %value, 0;
    st.shared.b{bits} [%address], %value;
}}
"""


@given(
    st.sampled_from([8, 16, 32, 64]),
    st.sampled_from([0, 1, 2]),
    st.sampled_from([1, 31, 32, 33, 255, 256, 257, 1000]),
    st.integers(-2, 2),
)
@example(8, 1, 33, 1)
@example(8, 0, 1, 0)
def test_shared_memory_ends_at_the_byte(bits, apart, length, beyond):
    size = bits // 8
    stride = apart * size
    text = SHARED.format(register=max(bits, 16), bits=bits, stride=stride, length=length)
    kernel = compiled(text).kernels["test"]
    # The last byte of the last lane is `beyond` bytes beyond the end.
    offset = max(0, length + beyond - (LANES - 1) * stride - size)
    launch = Launch(
        grid=(1, 1, 1),
        block=(LANES, 1, 1),
        dynamic_shared_bytes=0,
        parameters=pack(kernel, (np.uint32(offset),)),
        symbols=[],
        allocations=AllocationSnapshot([]),
    )
    outcome = kernel.start(launch).run()
    wrong = wrong_lanes([(0, length)], offset, LANES, stride, size)
    if not wrong:
        assert outcome.kind is OutcomeKind.DONE
        return
    assert outcome.kind is OutcomeKind.FAULT
    assert outcome.fault.threads == tuple((lane, 0, 0) for lane in wrong)
    assert outcome.fault.kind is next(iter(wrong.values()))


def test_an_instruction_keeps_room_for_one_reach():
    """An emitter that needs another reach at the same place compares both ends instead."""
    asking = SimpleNamespace(reaches={}, number=lambda: 7)
    assert has_room_for(asking, None, Reach(128, 4))
    assert not has_room_for(asking, None, Reach(4, 4))
    assert has_room_for(asking, None, Reach(128, 4))
    # A window is not memory of an allocation.
    assert has_room_for(asking, SHARED_WINDOW, Reach(4, 4))


@pytest.mark.parametrize("alignment", [1, 2, 4, 8, 16])
def test_a_reach_knows_the_logarithm_of_its_alignment(alignment):
    assert 1 << Reach(1, alignment).shift == alignment
