"""What random PTX programs are made of: registers, instructions, constants worth meeting."""

from __future__ import annotations

# The registers a program computes with, by the letter that stands for them in a template.
POOLS = {"R": ("b32", 5), "L": ("b64", 3), "F": ("f32", 4), "D": ("f64", 3), "H": ("b16", 3)}
PREDICATES = 3
# Words of its own, from the start of its scratch memory, that a thread may write at any time.
SCRATCH_WORDS = 4

# The target first, then sources. n: a register or a constant, w: a shift amount, p: a predicate.
_INTEGER = """
    add.T X X n|sub.T X X n|mul.lo.T X X n|mul.hi.T X X n|mad.lo.T X X n X|min.T X X n|max.T X X n
    div.T X X n|rem.T X X n|shr.T X X w|selp.bB X X n p
"""
_BITS = "and.T X X n|or.T X X n|xor.T X X n|not.T X X|shl.T X X w|cnot.T X X"
_FLOAT = """
    add.T X X n|sub.T X X n|mul.T X X n|fma.rn.T X X n X|div.rn.T X X n|sqrt.rn.T X X|rcp.rn.T X X
    neg.T X X|abs.T X X|min.T X X n|max.T X X n|selp.T X X n p|add.rz.T X X n|mul.rm.T X X n
    fma.rp.T X X n X|cvt.rmi.T.T X X|cvt.rni.T.T X X|mov.T X n
"""
_SINGLE = """
    add.ftz.f32 F F F|mul.ftz.f32 F F F|fma.rn.ftz.f32 F F F F|add.sat.f32 F F F|min.ftz.f32 F F F
    mul.sat.f32 F F F|cvt.sat.f32.f32 F F|cvt.rpi.ftz.f32.f32 F F|div.rn.ftz.f32 F F F
"""
_WIDE = """
    mul.wide.u32 L R n|mul.wide.s32 L R n|mad.wide.s32 L R R L|mad.wide.u32 L R n L
    mul.wide.u16 R H H|mul.wide.s16 R H H|add.sat.s32 R R n|sub.sat.s32 R R n|sad.s32 R R n R
    shf.l.wrap.b32 R R R w|shf.r.clamp.b32 R R R w|neg.s32 R R|abs.s32 R R|neg.s64 L L|abs.s64 L L
    mul24.lo.s32 R R R|mad.hi.u32 R R R R|slct.u32.s32 R R R R|set.lt.u32.s32 R R n
    popc.b32 R R|popc.b64 R L|clz.b32 R R|clz.b64 R L|brev.b32 R R|bfind.s32 R R|bfind.u64 R L
    bfe.u32 R R R R|bfe.s32 R R R R|bfe.s64 L L R R|bfi.b32 R R R R R|bfi.b64 L L L R R
    prmt.b32 R R R R|lop3.b32 R R R R 0x96|lop3.b32 R R R R 0xCA|lop3.b32 R R R R 0x1D
"""
_CONVERT = """
    cvt.u64.u32 L R|cvt.s64.s32 L R|cvt.u32.u64 R L|cvt.u16.u32 H R|cvt.u32.u16 R H|cvt.s32.s16 R H
    cvt.s32.s8 R R|cvt.u32.u8 R R|cvt.s16.s8 H H|cvt.sat.s8.s32 R R|cvt.sat.u16.s32 H R
    cvt.rn.f32.s32 F R|cvt.rn.f32.u32 F R|cvt.rz.f32.u64 F L|cvt.rp.f32.s32 F R|cvt.rn.f32.s64 F L
    cvt.rn.f64.s32 D R|cvt.rn.f64.u64 D L|cvt.rm.f64.s64 D L|cvt.f64.f32 D F|cvt.rn.f32.f64 F D
    cvt.rz.f32.f64 F D|cvt.rzi.s32.f32 R F|cvt.rni.u32.f32 R F|cvt.rmi.s64.f32 L F
    cvt.rpi.u64.f64 L D|cvt.rzi.s32.f64 R D|cvt.rzi.u16.f32 H F|cvt.rni.s16.f64 H D
"""
_SPECIAL = """
    mov.u32 R %tid.x|mov.u32 R %tid.x|mov.u32 R %tid.x|mov.u32 R %tid.y|mov.u32 R %tid.z
    mov.u32 R %ctaid.x|mov.u32 R %ctaid.y|mov.u32 R %ntid.x|mov.u32 R %ntid.y|mov.u32 R %laneid
"""
_COMPARE = """
    setp.eq.u32 P R n|setp.lt.s32 P R n|setp.ge.u32 P R n|setp.ne.u64 P L n|setp.gt.s64 P L n
    setp.lt.s16 P H n|setp.lo.u32 P R n|setp.lt.f32 P F F|setp.neu.f32 P F F|setp.geu.f32 P F n
    setp.nan.f32 P F F|setp.le.f64 P D D|setp.equ.f64 P D n|setp.lt.and.s32 P R n p
    setp.ge.or.u32 P R n p|setp.gt.xor.f32 P F F p|setp.ltu.ftz.f32 P F F
    and.pred P p p|or.pred P p p|xor.pred P p p|not.pred P p|mov.pred P p
"""


def _templates(text: str, **replace: str) -> list[list[str]]:
    for old, new in replace.items():
        text = text.replace(old, new)
    return [line.split() for part in text.strip().splitlines() for line in part.split("|")]


TEMPLATES: list[list[str]] = [
    *_templates(_INTEGER, T="u32", X="R", B="32"),
    *_templates(_INTEGER, T="s32", X="R", B="32"),
    *_templates(_INTEGER, T="u64", X="L", B="64"),
    *_templates(_INTEGER, T="s64", X="L", B="64"),
    *_templates(_INTEGER, T="s16", X="H", B="16"),
    *_templates(_BITS, T="b32", X="R"),
    *_templates(_BITS, T="b64", X="L"),
    *_templates(_BITS, T="b16", X="H"),
    *_templates(_FLOAT, T="f32", X="F"),
    *_templates(_FLOAT, T="f64", X="D"),
    *_templates(_SINGLE),
    *_templates(_WIDE),
    *_templates(_CONVERT) * 2,
    *_templates(_SPECIAL) * 2,
    *_templates(_COMPARE) * 2,
]

_INTEGERS = (0, 1, 2, 3, 4, 5, 7, 8, 31, 32, 100, 255, 0x7FFF, 0x8000, 0xFFFF)
EDGES = {
    "R": (*_INTEGERS, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0),
    "L": (*_INTEGERS, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 0x100000000),
    "H": _INTEGERS,
}
SINGLES = (0, 1 << 31, 0x3F800000, 0xBF000000, 0x4B800001, 0x7F800000, 1, 0x7FFFFFFF, 0x3DCCCCCD)
DOUBLES = (0, 1 << 63, 0x3FF0000000000000, 0xBFE0000000000000, 0x43E0000000000001, 1)
