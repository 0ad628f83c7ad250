"""Cellar. The functions of the device's run-time library (libcudadevrt) that are useful here.

The library is machine code, which cannot run here; clients link it for the barrier of a whole grid.
These are its functions, written in PTX. A grid's handle is the address of its workspace, which a
cooperative launch passes in %envreg1 and %envreg2 (see "Cooperative launches" in jit/DESIGN.md).
The second word is the barrier. As in the headers of cooperative groups, the first block adds the
rest to 2^31, so that the sign changes when all blocks have come.
"""

from __future__ import annotations

from typing import Final

PROVIDED: Final = frozenset({"cudaCGGetIntrinsicHandle", "cudaCGSynchronize", "cudaCGGetSize"})

# A string that every archive of the library contains.
LIBRARY_MARK: Final = b"cuda_device_runtime"

RUNTIME_PTX: Final = """\
.version 7.0
.target sm_70
.address_size 64

.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .b32 %r_high;
    .reg .b32 %r_low;
    .reg .b64 %rd_workspace;
    mov.u32 %r_high, %envreg1;
    mov.u32 %r_low, %envreg2;
    mov.b64 %rd_workspace, {%r_low, %r_high};
    st.param.b64 [handle], %rd_workspace;
    ret;
}

.visible .func (.param .b32 status) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
    .reg .pred %is_alone;
    .reg .pred %is_other;
    .reg .pred %waits;
    .reg .b32 %r_other;
    .reg .b32 %r_size;
    .reg .b32 %r_add;
    .reg .b32 %r_old;
    .reg .b32 %r_now;
    .reg .b64 %rd_barrier;
    ld.param.b64 %rd_barrier, [handle];
    setp.eq.u64 %is_alone, %rd_barrier, 0;
    @%is_alone trap;
    add.u64 %rd_barrier, %rd_barrier, 4;
    barrier.sync 0;
    mov.u32 %r_other, %tid.x;
    mov.u32 %r_now, %tid.y;
    or.b32 %r_other, %r_other, %r_now;
    mov.u32 %r_now, %tid.z;
    or.b32 %r_other, %r_other, %r_now;
    setp.ne.u32 %is_other, %r_other, 0;
    @%is_other bra met;
    mov.u32 %r_other, %ctaid.x;
    mov.u32 %r_now, %ctaid.y;
    or.b32 %r_other, %r_other, %r_now;
    mov.u32 %r_now, %ctaid.z;
    or.b32 %r_other, %r_other, %r_now;
    mov.u32 %r_size, %nctaid.x;
    mov.u32 %r_now, %nctaid.y;
    mul.lo.u32 %r_size, %r_size, %r_now;
    mov.u32 %r_now, %nctaid.z;
    mul.lo.u32 %r_size, %r_size, %r_now;
    sub.u32 %r_size, 0x80000001, %r_size;
    setp.ne.u32 %is_other, %r_other, 0;
    selp.b32 %r_add, 1, %r_size, %is_other;
    membar.gl;
    atom.add.u32 %r_old, [%rd_barrier], %r_add;
again:
    ld.volatile.u32 %r_now, [%rd_barrier];
    xor.b32 %r_now, %r_now, %r_old;
    setp.ge.s32 %waits, %r_now, 0;
    @%waits bra again;
    membar.gl;
met:
    barrier.sync 0;
    st.param.b32 [status], 0;
    ret;
}

.visible .func (.param .b32 status) cudaCGGetSize(
    .param .b64 threads,
    .param .b64 devices,
    .param .b64 handle
)
{
    .reg .pred %is_wanted;
    .reg .b32 %r_count;
    .reg .b32 %r_next;
    .reg .b64 %rd_place;
    mov.u32 %r_count, %nctaid.x;
    mov.u32 %r_next, %nctaid.y;
    mul.lo.u32 %r_count, %r_count, %r_next;
    mov.u32 %r_next, %nctaid.z;
    mul.lo.u32 %r_count, %r_count, %r_next;
    mov.u32 %r_next, %ntid.x;
    mul.lo.u32 %r_count, %r_count, %r_next;
    mov.u32 %r_next, %ntid.y;
    mul.lo.u32 %r_count, %r_count, %r_next;
    mov.u32 %r_next, %ntid.z;
    mul.lo.u32 %r_count, %r_count, %r_next;
    ld.param.b64 %rd_place, [threads];
    setp.ne.u64 %is_wanted, %rd_place, 0;
    @%is_wanted st.u32 [%rd_place], %r_count;
    ld.param.b64 %rd_place, [devices];
    setp.ne.u64 %is_wanted, %rd_place, 0;
    @%is_wanted st.u32 [%rd_place], 1;
    st.param.b32 [status], 0;
    ret;
}
"""
