"""Cellar. The PTX of fetches: a texel, or a weighted sum of 2, 4 or 8 texels, of one or two levels.

The formula is the CUDA programming guide's: tex(x, y) = (1 - a)(1 - b) T[i, j] + a (1 - b)
T[i + 1, j] + (1 - a) b T[i, j + 1] + a b T[i + 1, j + 1]. Products of weights are exact, because
weights have 8 bits.
"""

from __future__ import annotations

from typing import Final

from cudasync.softgpu.interface.texture_layout import Field, Level

_AXES: Final = "xyz"
_CHANNELS: Final = "rgba"
_RESULTS: Final = ".reg .b32 r, .reg .b32 g, .reg .b32 b, .reg .b32 a"
_LENGTHS: Final = (Level.WIDTH, Level.HEIGHT, Level.DEPTH)


def _where(count: int, type_: str) -> str:
    """The parameters of a place: coordinates, then the slice if no coordinate chooses it."""
    names = [f".reg .{type_} {axis}" for axis in _AXES[:count]]
    return ", ".join([*names, *([".reg .b32 slice"] if count < 3 else [])])


def _texel(prefix: str, indices: list[str], results: str = "%{}") -> str:
    """A call for the texel at these indices, one for each coordinate."""
    found = ", ".join(results.format(channel) for channel in _CHANNELS)
    match indices:
        case [x]:
            place = [x, "0", "slice"]
        case [x, y]:
            place = [x, y, "slice"]
        case _:
            place = indices
    return f"call ({found}), texel, ({prefix}, {', '.join(place)});"


def _axes(count: int, linear: str) -> str:
    text = f"    ld.global.u32 %is_normalised, [object+{Field.IS_NORMALISED}];\n"
    for number, axis in enumerate(_AXES[:count]):
        text += f"""
    ld.global.u32 %length, [level+{_LENGTHS[number]}];
    ld.global.u32 %mode, [object+{Field.MODE + 4 * number}];
    call (%{axis}0, %{axis}1, %w{axis}), axis, ({axis}, %length, %mode, %is_normalised, {linear});
"""
    return text


_AXIS_REGISTERS: Final = """
    .reg .b32 %x0, %x1, %y0, %y1, %z0, %z1, %length, %mode, %is_normalised;
    .reg .f32 %wx, %wy, %wz;
"""


def sample(count: int) -> str:
    """The function that samples one level, with the object's filter."""
    corners = ""
    for corner in range(1 << count):
        sides = [corner >> number & 1 for number in range(count)]
        indices = [f"%{axis}{side}" for axis, side in zip(_AXES, sides, strict=False)]
        weights = [
            f"%{'w' if side else 'v'}{axis}" for axis, side in zip(_AXES, sides, strict=False)
        ]
        corners += f"    {_texel('object, level', indices, '%t{}')}\n"
        weight = weights[0]
        for factor in weights[1:]:
            corners += f"    mul.rn.f32 %weight, {weight}, {factor};\n"
            weight = "%weight"
        for channel in _CHANNELS:
            into = f"%t{channel}" if corner else channel
            corners += f"    mul.rn.f32 {into}, %t{channel}, {weight};\n"
            if corner:
                corners += f"    add.rn.f32 {channel}, {channel}, %t{channel};\n"
    rests = "".join(f"    sub.rn.f32 %v{axis}, 0f3F800000, %w{axis};\n" for axis in _AXES[:count])
    return f"""
.func ({_RESULTS}) sample{count}(.reg .b64 object, .reg .b64 level, {_where(count, "f32")})
{{
    {_AXIS_REGISTERS}
    .reg .b32 %linear, %tr, %tg, %tb, %ta;
    .reg .f32 %vx, %vy, %vz, %weight;
    .reg .pred %is_linear;

    ld.global.u32 %linear, [object+{Field.IS_LINEAR}];
    setp.ne.u32 %is_linear, %linear, 0;
{_axes(count, "%linear")}
    @%is_linear bra linear;
    {_texel("object, level", [f"%{axis}0" for axis in _AXES[:count]], "{}")}
    ret;
linear:
{rests}
{corners}
    ret;
}}
"""


def blend(count: int) -> str:
    """The function that samples the one or two levels that a level of detail lies between."""
    place = ", ".join([*_AXES[:count], *(["slice"] if count < 3 else [])])
    mixed = "".join(
        f"""
    mul.rn.f32 {channel}, {channel}, %rest;
    mul.rn.f32 %t{channel}, %t{channel}, %part;
    add.rn.f32 {channel}, {channel}, %t{channel};"""
        for channel in _CHANNELS
    )
    return f"""
.func ({_RESULTS}) blend{count}(.reg .b64 object, .reg .f32 detail, {_where(count, "f32")})
{{
    .reg .f32 %bound, %whole, %part, %rest;
    .reg .b32 %last, %number, %blends, %tr, %tg, %tb, %ta;
    .reg .b64 %level, %levels;
    .reg .pred %is_blended;

    ld.global.f32 %bound, [object+{Field.BIAS}];
    add.rn.f32 detail, detail, %bound;
    ld.global.f32 %bound, [object+{Field.LEAST_LEVEL}];
    max.f32 detail, detail, %bound;
    ld.global.f32 %bound, [object+{Field.MOST_LEVEL}];
    min.f32 detail, detail, %bound;
    ld.global.u32 %last, [object+{Field.LAST_LEVEL}];
    cvt.rn.f32.u32 %bound, %last;
    min.f32 detail, detail, %bound;
    max.f32 detail, detail, 0f00000000;
    add.u64 %levels, object, {Field.LEVELS};
    ld.global.u32 %blends, [object+{Field.BLENDS_LEVELS}];
    setp.ne.u32 %is_blended, %blends, 0;
    @!%is_blended add.rn.f32 detail, detail, 0f3F000000;
    cvt.rmi.f32.f32 %whole, detail;
    cvt.rzi.u32.f32 %number, %whole;
    min.u32 %number, %number, %last;
    mad.wide.u32 %level, %number, {Level.SIZE}, %levels;
    call (r, g, b, a), sample{count}, (object, %level, {place});
    @!%is_blended ret;
    sub.rn.f32 %part, detail, %whole;
    mul.rn.f32 %part, %part, 0f43800000;
    cvt.rni.f32.f32 %part, %part;
    mul.rn.f32 %part, %part, 0f3B800000;
    setp.neu.f32 %is_blended, %part, 0f00000000;
    @!%is_blended ret;
    add.u32 %number, %number, 1;
    min.u32 %number, %number, %last;
    mad.wide.u32 %level, %number, {Level.SIZE}, %levels;
    call (%tr, %tg, %tb, %ta), sample{count}, (object, %level, {place});
    sub.rn.f32 %rest, 0f3F800000, %part;
{mixed}
    ret;
}}
"""


def fetch(count: int) -> str:
    """The function that fetches the texel at integer coordinates of a level."""
    text = ""
    for number, axis in enumerate(_AXES[:count]):
        text += f"""
    ld.global.u32 %length, [level+{_LENGTHS[number]}];
    ld.global.u32 %mode, [object+{Field.MODE + 4 * number}];
    call ({axis}), index, ({axis}, %length, %mode);
"""
    return f"""
.func ({_RESULTS}) fetch{count}(.reg .b64 object, .reg .b64 level, {_where(count, "b32")})
{{
    .reg .b32 %length, %mode;
{text}
    {_texel("object, level", list(_AXES[:count]), "{}")}
    ret;
}}
"""


# One channel of the four texels of a linear fetch, counter-clockwise from the lower left.
GATHER: Final = f"""
.func ({_RESULTS}) gather(
    .reg .b64 object, .reg .b64 level, .reg .f32 x, .reg .f32 y, .reg .b32 slice, .reg .b32 channel)
{{
    {_AXIS_REGISTERS}
    .reg .b32 %r, %g, %b, %a;
    .reg .pred %is_g, %is_b, %is_a;

{_axes(2, "1")}
    setp.eq.u32 %is_g, channel, 1;
    setp.eq.u32 %is_b, channel, 2;
    setp.eq.u32 %is_a, channel, 3;
{
    "".join(
        f'''
    {_texel("object, level", list(indices))}
    selp.b32 {into}, %g, %r, %is_g;
    selp.b32 {into}, %b, {into}, %is_b;
    selp.b32 {into}, %a, {into}, %is_a;'''
        for into, indices in zip(
            "rgba", (("%x0", "%y1"), ("%x1", "%y1"), ("%x1", "%y0"), ("%x0", "%y0")), strict=True
        )
    )
}
    ret;
}}
"""


def detail(count: int) -> str:
    """The level of detail of two gradients: the logarithm of the longer one, in texels."""
    arguments = ", ".join(f".reg .f32 {of}{axis}" for of in "pq" for axis in _AXES[:count])
    scaled = "".join(
        f"""
    ld.global.u32 %length, [object+{Field.LEVELS + _LENGTHS[number]}];
    cvt.rn.f32.u32 %scale, %length;
    selp.f32 %scale, %scale, 0f3F800000, %is_normalised;
    mul.rn.f32 p{axis}, p{axis}, %scale;
    mul.rn.f32 q{axis}, q{axis}, %scale;
    fma.rn.f32 %p, p{axis}, p{axis}, %p;
    fma.rn.f32 %q, q{axis}, q{axis}, %q;"""
        for number, axis in enumerate(_AXES[:count])
    )
    return f"""
.func (.reg .f32 level) detail{count}(.reg .b64 object, {arguments})
{{
    .reg .b32 %length, %flag;
    .reg .f32 %scale, %p, %q;
    .reg .pred %is_normalised;

    ld.global.u32 %flag, [object+{Field.IS_NORMALISED}];
    setp.ne.u32 %is_normalised, %flag, 0;
    mov.f32 %p, 0f00000000;
    mov.f32 %q, 0f00000000;
{scaled}
    max.f32 %p, %p, %q;
    lg2.approx.f32 %p, %p;
    mul.rn.f32 level, %p, 0f3F000000;
    ret;
}}
"""
