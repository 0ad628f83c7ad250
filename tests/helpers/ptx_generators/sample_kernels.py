"""Small kernels as PTX text, for tests that need any kernel."""

from __future__ import annotations

HEAD = ".version 6.4\n.target sm_75\n.address_size 64\n"

# target[i] = value, for i < count.
FILL = (
    HEAD
    + """
.visible .entry fill(.param .u64 target, .param .u32 value, .param .u32 count)
{
    .reg .pred %p_outside;
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [target];
    ld.param.u32 %r0, [value];
    ld.param.u32 %r1, [count];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p_outside, %r5, %r1;
    @%p_outside bra DONE;
    cvta.to.global.u64 %rd1, %rd0;
    mul.wide.u32 %rd2, %r5, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r0;
DONE:
    ret;
}
"""
)

# Stores each parameter into target, one after the other, at multiples of 8 bytes.
STORE_PARAMETERS = (
    HEAD
    + """
.visible .entry store(
    .param .u64 target,
    .param .u8 byte,
    .param .u16 short,
    .param .s32 int,
    .param .f32 single,
    .param .f64 double,
    .param .b64 bits,
    .param .align 8 .b8 pair[16]
)
{
    .reg .b16 %h<2>;
    .reg .b32 %r<2>;
    .reg .f32 %f<1>;
    .reg .f64 %d<1>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd0, [target];
    cvta.to.global.u64 %rd0, %rd0;
    ld.param.u8 %h0, [byte];
    st.global.u8 [%rd0], %h0;
    ld.param.u16 %h1, [short];
    st.global.u16 [%rd0+8], %h1;
    ld.param.u32 %r0, [int];
    st.global.u32 [%rd0+16], %r0;
    ld.param.f32 %f0, [single];
    st.global.f32 [%rd0+24], %f0;
    ld.param.f64 %d0, [double];
    st.global.f64 [%rd0+32], %d0;
    ld.param.u64 %rd1, [bits];
    st.global.u64 [%rd0+40], %rd1;
    ld.param.u64 %rd2, [pair];
    st.global.u64 [%rd0+48], %rd2;
    ld.param.u64 %rd3, [pair+8];
    st.global.u64 [%rd0+56], %rd3;
    ret;
}

.visible .entry nothing()
{
    ret;
}
"""
)

# Each thread writes its dynamic shared word back; needs 4 bytes of shared memory per thread.
SHARED = (
    HEAD
    + """
.extern .shared .align 4 .b8 scratch[];

.visible .entry shared(.param .u64 target)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [target];
    cvta.to.global.u64 %rd0, %rd0;
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, scratch;
    shl.b32 %r2, %r0, 2;
    add.u32 %r1, %r1, %r2;
    st.shared.u32 [%r1], %r0;
    bar.sync 0;
    ld.shared.u32 %r3, [%r1];
    mul.wide.u32 %rd1, %r0, 4;
    add.s64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], %r3;
    ret;
}
"""
)
