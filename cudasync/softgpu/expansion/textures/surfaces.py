"""Cellar. The PTX of surfaces: the address of an access, and whether the access is inside."""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.texture_layout import Field, Level

# `x` counts bytes. A place beyond the surface is moved to the nearest place inside, and `is_inside`
# is then 0.
PLACE: Final = f"""
.func (.reg .b64 address, .reg .b32 is_inside) place(
    .reg .b64 object, .reg .b32 x, .reg .b32 y, .reg .b32 z, .reg .b32 bytes)
{{
    .reg .b32 %most, %least, %length;
    .reg .b64 %step, %wide;
    .reg .pred %is_out, %is;

    ld.global.u32 %most, [object+{Field.LEVELS + Level.ROW_BYTES}];
    sub.s32 %most, %most, bytes;
    max.s32 %most, %most, 0;
    setp.gt.u32 %is_out, x, %most;
    max.s32 x, x, 0;
    min.s32 x, x, %most;
    ld.global.u32 %length, [object+{Field.LEVELS + Level.HEIGHT}];
    setp.ge.u32 %is, y, %length;
    or.pred %is_out, %is_out, %is;
    sub.s32 %length, %length, 1;
    max.s32 y, y, 0;
    min.s32 y, y, %length;
    ld.global.u32 %length, [object+{Field.LEVELS + Level.DEPTH}];
    setp.ge.u32 %is, z, %length;
    or.pred %is_out, %is_out, %is;
    sub.s32 %length, %length, 1;
    max.s32 z, z, 0;
    min.s32 z, z, %length;
    ld.global.u64 address, [object+{Field.LEVELS + Level.BASE}];
    cvt.u64.u32 %wide, x;
    add.u64 address, address, %wide;
    ld.global.u64 %step, [object+{Field.LEVELS + Level.PITCH}];
    cvt.u64.u32 %wide, y;
    mad.lo.u64 address, %wide, %step, address;
    ld.global.u64 %step, [object+{Field.LEVELS + Level.SLICE}];
    cvt.u64.u32 %wide, z;
    mad.lo.u64 address, %wide, %step, address;
    selp.b32 is_inside, 0, 1, %is_out;
    ret;
}}
"""
