"""Cellar. The PTX for textures: reads a texel, and maps a coordinate to texels.

The formulas are those of the CUDA programming guide, "Texture Fetching". Where the guide says
nothing: a weight is rounded to the nearest multiple of 1/256, half to even; missing channels read
as 0, 0 and 1; and nothing is fused, so that sums are those of the formula, in its order.
"""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.texture_layout import Decoding, Field, Level, Mode

# The texel at x, y, z of a level; the border's if one of them is negative.
TEXEL: Final = f"""
.func (.reg .b32 r, .reg .b32 g, .reg .b32 b, .reg .b32 a) texel(
    .reg .b64 object, .reg .b64 level, .reg .b32 x, .reg .b32 y, .reg .b32 z)
{{
    .reg .b32 %any, %size, %bytes, %channels, %shift, %how, %one;
    .reg .b64 %at, %step, %wide;
    .reg .f32 %largest;
    .reg .b16 %half;
    .reg .pred %is_out, %is_byte, %is_word, %has_two, %has_four, %is;

    or.b32 %any, x, y;
    or.b32 %any, %any, z;
    setp.lt.s32 %is_out, %any, 0;
    @%is_out bra border;
    ld.global.v4.u32 {{%size, %channels, %how, %shift}}, [object+{Field.TEXEL_BYTES}];
    ld.global.v2.u64 {{%at, %step}}, [level+{Level.BASE}];
    mul.wide.u32 %wide, x, %size;
    add.u64 %at, %at, %wide;
    cvt.u64.u32 %wide, y;
    mad.lo.u64 %at, %wide, %step, %at;
    ld.global.u64 %step, [level+{Level.SLICE}];
    cvt.u64.u32 %wide, z;
    mad.lo.u64 %at, %wide, %step, %at;
    ld.global.u32 %bytes, [object+{Field.CHANNEL_BYTES}];
    setp.ge.u32 %has_two, %channels, 2;
    setp.ge.u32 %has_four, %channels, 4;
    setp.eq.u32 %is_byte, %bytes, 1;
    setp.eq.u32 %is_word, %bytes, 4;
    mov.b32 g, 0;
    mov.b32 b, 0;
    mov.b32 a, 0;
    @%is_word bra words;
    @%is_byte bra bytes;
    ld.global.u16 r, [%at];
    @%has_two ld.global.u16 g, [%at+2];
    @%has_four ld.global.u16 b, [%at+4];
    @%has_four ld.global.u16 a, [%at+6];
    bra extend;
bytes:
    ld.global.u8 r, [%at];
    @%has_two ld.global.u8 g, [%at+1];
    @%has_four ld.global.u8 b, [%at+2];
    @%has_four ld.global.u8 a, [%at+3];
extend:
{
    "".join(
        f'''
    shl.b32 {c}, {c}, %shift;
    shr.s32 {c}, {c}, %shift;'''
        for c in "rgba"
    )
}
    bra decode;
words:
    ld.global.b32 r, [%at];
    @%has_two ld.global.b32 g, [%at+4];
    @%has_four ld.global.b32 b, [%at+8];
    @%has_four ld.global.b32 a, [%at+12];
decode:
    setp.eq.u32 %is, %how, {Decoding.AS_IT_IS};
    @%is bra done;
    setp.eq.u32 %is, %how, {Decoding.HALF};
    @%is bra halves;
    setp.eq.u32 %is, %how, {Decoding.SRGB};
    @%is bra srgb;
    ld.global.f32 %largest, [object+{Field.LARGEST}];
{
    "".join(
        f'''
    cvt.rn.f32.s32 {c}, {c};
    div.rn.f32 {c}, {c}, %largest;
    max.f32 {c}, {c}, 0fBF800000;'''
        for c in "rgba"
    )
}
    bra done;
halves:
{
    "".join(
        f'''
    cvt.u16.u32 %half, {c};
    cvt.f32.f16 {c}, %half;'''
        for c in "rgba"
    )
}
    bra done;
srgb:
    ld.global.u64 %at, [object+{Field.SRGB}];
{
    "".join(
        f'''
    mad.wide.u32 %wide, {c}, 4, %at;
    ld.global.b32 {c}, [%wide];'''
        for c in "rgb"
    )
}
    ld.global.f32 %largest, [object+{Field.LARGEST}];
    cvt.rn.f32.u32 a, a;
    div.rn.f32 a, a, %largest;
done:
    ld.global.u32 %one, [object+{Field.ONE}];
    selp.b32 g, g, 0, %has_two;
    selp.b32 b, b, 0, %has_four;
    selp.b32 a, a, %one, %has_four;
    ret;
border:
    ld.global.v4.b32 {{r, g, b, a}}, [object+{Field.BORDER}];
    ret;
}}
"""


def _resolved(index: str) -> str:
    """PTX that brings an index into the texture by the mode; -1 means the border."""
    return f"""
    setp.lt.s32 %is_below, {index}, 0;
    setp.ge.s32 %is_above, {index}, size;
    or.pred %is_out, %is_below, %is_above;
    add.s32 %moved, {index}, size;
    @%is_above sub.s32 %moved, {index}, size;
    and.pred %takes, %is_out, %is_wrapping;
    selp.b32 {index}, %moved, {index}, %takes;
    max.s32 {index}, {index}, 0;
    min.s32 {index}, {index}, %last;
    and.pred %takes, %is_out, %has_border;
    selp.b32 {index}, -1, {index}, %takes;"""


# The texels on either side of a coordinate, and the weight of the second, with 8 fractional bits.
AXIS: Final = f"""
.func (.reg .b32 first, .reg .b32 second, .reg .f32 weight) axis(
    .reg .f32 at, .reg .b32 size, .reg .b32 mode, .reg .b32 normalised, .reg .b32 linear)
{{
    .reg .f32 %whole, %rest, %half, %turned, %length;
    .reg .b32 %last, %moved;
    .reg .pred %is_normalised, %is_linear, %is_wrapping, %is_mirrored, %has_border;
    .reg .pred %is_below, %is_above, %is_out, %takes, %is_odd;

    setp.ne.u32 %is_normalised, normalised, 0;
    setp.ne.u32 %is_linear, linear, 0;
    setp.eq.u32 %is_wrapping, mode, {Mode.WRAP};
    setp.eq.u32 %is_mirrored, mode, {Mode.MIRROR};
    setp.eq.u32 %has_border, mode, {Mode.BORDER};
    sub.s32 %last, size, 1;
    @!%is_normalised bra texels;
    cvt.rmi.f32.f32 %whole, at;
    sub.rn.f32 %rest, at, %whole;
    mul.rn.f32 %half, %whole, 0f3F000000;
    cvt.rmi.f32.f32 %length, %half;
    setp.neu.f32 %is_odd, %half, %length;
    sub.rn.f32 %turned, 0f3F800000, %rest;
    selp.f32 %turned, %turned, %rest, %is_odd;
    selp.f32 at, %rest, at, %is_wrapping;
    selp.f32 at, %turned, at, %is_mirrored;
    cvt.rn.f32.u32 %length, size;
    mul.rn.f32 at, at, %length;
texels:
    @%is_linear sub.rn.f32 at, at, 0f3F000000;
    min.f32 at, at, 0f4B800000;
    max.f32 at, at, 0fCB800000;
    cvt.rmi.f32.f32 %whole, at;
    cvt.rzi.s32.f32 first, %whole;
    add.s32 second, first, 1;
    sub.rn.f32 weight, at, %whole;
    mul.rn.f32 weight, weight, 0f43800000;
    cvt.rni.f32.f32 weight, weight;
    mul.rn.f32 weight, weight, 0f3B800000;
{_resolved("first")}
{_resolved("second")}
    ret;
}}
"""

# An integer coordinate that is not normalised: beyond the texture it is the edge or the border.
INDEX: Final = f"""
.func (.reg .b32 index) index(.reg .b32 at, .reg .b32 size, .reg .b32 mode)
{{
    .reg .b32 %last;
    .reg .pred %is_out, %has_border, %takes;

    setp.ge.u32 %is_out, at, size;
    setp.eq.u32 %has_border, mode, {Mode.BORDER};
    sub.s32 %last, size, 1;
    max.s32 index, at, 0;
    min.s32 index, index, %last;
    and.pred %takes, %is_out, %has_border;
    selp.b32 index, -1, index, %takes;
    ret;
}}
"""

# The face of a cube that a direction meets, and the coordinates on that face.
CUBE: Final = """
.func (.reg .b32 face, .reg .f32 s, .reg .f32 t) cube(.reg .f32 x, .reg .f32 y, .reg .f32 z)
{
    .reg .f32 %ax, %ay, %az, %major, %s, %t, %turned, %most;
    .reg .b32 %is_down;
    .reg .pred %is_x, %is_y, %below, %takes;

    abs.f32 %ax, x;
    abs.f32 %ay, y;
    abs.f32 %az, z;
    max.f32 %most, %ay, %az;
    setp.ge.f32 %is_x, %ax, %most;
    setp.ge.f32 %is_y, %ay, %az;
    not.pred %takes, %is_x;
    and.pred %is_y, %is_y, %takes;
    selp.f32 %major, y, z, %is_y;
    selp.f32 %major, x, %major, %is_x;
    setp.lt.f32 %below, %major, 0f00000000;
    selp.b32 %is_down, 1, 0, %below;
    selp.b32 face, 2, 4, %is_y;
    selp.b32 face, 0, face, %is_x;
    add.s32 face, face, %is_down;
    neg.f32 %turned, z;
    selp.f32 %s, z, %turned, %below;
    neg.f32 %turned, x;
    selp.f32 %t, %turned, x, %below;
    selp.f32 %t, x, %t, %is_y;
    selp.f32 %s, %s, %t, %is_x;
    neg.f32 %turned, z;
    selp.f32 %t, %turned, z, %below;
    neg.f32 %turned, y;
    selp.f32 %t, %t, %turned, %is_y;
    abs.f32 %major, %major;
    div.rn.f32 %s, %s, %major;
    add.rn.f32 %s, %s, 0f3F800000;
    mul.rn.f32 s, %s, 0f3F000000;
    div.rn.f32 %t, %t, %major;
    add.rn.f32 %t, %t, 0f3F800000;
    mul.rn.f32 t, %t, 0f3F000000;
    ret;
}
"""
