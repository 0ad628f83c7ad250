"""A loop does not carry the values that its nodes pass on: LLVM's work is linear in the kernel.

The programs `ptx/isa/bra_loop_*.ptx` show that lanes which left a loop, or wait, keep their values.
"""

from __future__ import annotations

from helpers.lowering.assembly import optimised
from helpers.ptx_generators.kernel_frame import kernel

from cudasync.ptx import parse
from cudasync.softgpu.jit import compile_module


def body(forks):
    """A grid-stride loop with divergent branches, unless the grid has a certain size.

    Later branches use the value of each earlier one.
    """
    steps = "".join(
        f"setp.lt.s32 %p1, %r1, {each}; mad.lo.s32 %v{each}, %r1, %r1, {each};"
        f"@%p3 bra b{each}; @%p1 bra a{each}; add.s32 %v{each}, %v{each}, 1;"
        f"a{each}: add.s32 %v{each}, %v{each}, %r1; b{each}:"
        f"add.s32 %r2, %r2, %v{max(0, each - 3)};"
        for each in range(forks)
    )
    return f"""
    .reg .s32 %v<{forks}>;
    mov.u32 %r1, %tid.x;
    ld.param.u64 %d1, [x];
    mov.u32 %r3, %nctaid.x;
    setp.eq.s32 %p3, %r3, 7;
top:
    mov.u32 %r2, 0;
    {steps}
    mul.wide.u32 %d2, %r1, 4;
    add.s64 %d2, %d1, %d2;
    st.global.u32 [%d2], %r2;
    add.s32 %r1, %r1, 64;
    setp.lt.s32 %p2, %r1, 1000;
    @%p2 bra top;
    ret;
    """


def phis(forks):
    (found,) = compile_module(parse(kernel(body(forks)))).kernels.values()
    return optimised(found.text(found.variant((64, 1, 1))).text).count(" = phi ")


def test_values_to_choose_from_where_ways_meet_grow_with_the_kernel_and_not_with_its_square():
    assert phis(80) < 1.1 * 2 * phis(40)
