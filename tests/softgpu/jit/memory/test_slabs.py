"""Local memory of threads lies in slabs, which are apart and spread over the cache's sets."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering import bare_launch

from cudasync.ptx import parse
from cudasync.softgpu import jit
from cudasync.softgpu.interface.launch import FaultKind, OutcomeKind
from cudasync.softgpu.jit.transforms.slabs import Slab

THREADS = 96
SIZES = [16, 496, 512, 528, 1024, 4096]
TEXT = """
.version 7.0
.target sm_75
.address_size 64
.visible .entry test(.param .u64 out)
{{
    .local .align {alignment} .b8 room[{size}];
    .reg .u32 %r<4>;
    .reg .u64 %rd<4>;
    mov.u32 %r0, %tid.x;
    not.b32 %r1, %r0;
    st.local.u32 [room], %r0;
    st.local.u32 [room+{last}], %r1;
    bar.sync 0;
    ld.local.u32 %r2, [room];
    mov.u64 %rd2, room;
    ld.local.u32 %r3, [%rd2+{read}];
    ld.param.u64 %rd0, [out];
    mad.wide.u32 %rd1, %r0, 8, %rd0;
    st.global.v2.u32 [%rd1], {{%r2, %r3}};
    ret;
}}
"""


def run(size, *, alignment=16, read=None, **how):
    last = size - 4
    read = last if read is None else read
    text = TEXT.format(size=size, alignment=alignment, last=last, read=read)
    out = bare_launch.aligned(np.zeros((THREADS, 2), np.uint32))
    module = jit.compile_module(parse(text), **how)
    return out, bare_launch.run(module, "test", grid=(3,), block=(THREADS,), args=[out])


@pytest.mark.parametrize("alignment", [16, 256])
@pytest.mark.parametrize("size", SIZES)
def test_every_thread_has_its_own_bytes_from_the_first_to_the_last(size, alignment):
    out, outcome = run(size, alignment=alignment)
    assert outcome.kind is OutcomeKind.DONE, outcome.fault
    assert out[:, 0].tolist() == list(range(THREADS))
    assert (~out[:, 1]).tolist() == list(range(THREADS))


@pytest.mark.parametrize("size", SIZES)
def test_what_lies_between_slabs_is_nobody_s(size):
    _, outcome = run(size, read=size)
    assert outcome.fault is not None
    assert outcome.fault.kind is FaultKind.ILLEGAL_ADDRESS


@pytest.mark.parametrize("alignment", [16, 64, 256])
@pytest.mark.parametrize("size", SIZES)
def test_large_slabs_are_apart_by_an_odd_number_of_lines(size, alignment):
    size = -(-size // alignment) * alignment
    stride = Slab(size, alignment).stride
    assert stride >= size
    assert stride % alignment == 0
    assert stride < size + 2 * max(64, alignment)
    if size >= 512 and alignment <= 64:
        assert stride % 128 == 64
