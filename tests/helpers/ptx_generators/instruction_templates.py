"""The parts of random PTX programs: registers, instructions, and interesting constants.

A template is an opcode, its target and its sources, each a letter of POOLS or one of

    n  a register of the target's pool, or a constant       w  a shift amount
    p  a predicate                P  a predicate as target  Q  two predicates, `p|q`
    t  any constant of 8 bits     anything else stands for itself
"""

from __future__ import annotations

from itertools import product

# The registers that a program computes with, by their letter in a template. H and G are bits. E is
# an f16 and G a pair of f16; they are separate from H and R because the bits of a NaN must not
# show.
POOLS = {
    "R": ("b32", 5),
    "L": ("b64", 3),
    "F": ("f32", 4),
    "D": ("f64", 3),
    "H": ("b16", 3),
    "E": ("f16", 3),
    "G": ("b32", 2),
}
PREDICATES = 3
# Words at the start of a thread's scratch memory, which the thread may write at any time.
SCRATCH_WORDS = 4

_INTEGER = """
    add.T X X n|sub.T X X n|mul.lo.T X X n|mul.hi.T X X n|mad.lo.T X X n X|min.T X X n|max.T X X n
    mad.hi.T X X X X|div.T X X n|rem.T X X n|shr.T X X w|selp.T X X n p|sad.T X X n X
    slct.T.s32 X X X R|slct.T.f32 X X X F
"""
_BITS = """
    and.T X X n|or.T X X n|xor.T X X n|not.T X X|shl.T X X w|shr.T X X w|cnot.T X X|selp.T X X n p
    mov.T X n
"""
_FLOAT = """
    add.T X X n|sub.T X X n|mul.T X X n|fma.rn.T X X n X|div.rn.T X X n|sqrt.rn.T X X|rcp.rn.T X X
    neg.T X X|abs.T X X|min.T X X n|max.T X X n|selp.T X X n p|add.rz.T X X n|mul.rm.T X X n
    fma.rp.T X X n X|cvt.rmi.T.T X X|cvt.rni.T.T X X|cvt.rzi.T.T X X|cvt.rpi.T.T X X|mov.T X n
    sub.rp.T X X n|mul.rz.T X X n|fma.rm.T X X X X|fma.rz.T X n X X|add.rm.T X X X|div.rz.T X X X
    div.rp.T X X X|sqrt.rm.T X X|sqrt.rp.T X X|rcp.rz.T X X|rcp.rm.T X X|copysign.T X X X
    slct.T.s32 X X X R|slct.T.f32 X X X F
    testp.finite.T P X|testp.infinite.T P X|testp.number.T P X|testp.notanumber.T P X
    testp.normal.T P X|testp.subnormal.T P X
"""
_SINGLE = """
    add.ftz.f32 F F F|mul.ftz.f32 F F F|fma.rn.ftz.f32 F F F F|add.sat.f32 F F F|min.ftz.f32 F F F
    mul.sat.f32 F F F|cvt.sat.f32.f32 F F|cvt.rpi.ftz.f32.f32 F F|div.rn.ftz.f32 F F F
    sub.ftz.sat.f32 F F F|fma.rn.sat.f32 F F F F|neg.ftz.f32 F F|abs.ftz.f32 F F|max.NaN.f32 F F F
    min.NaN.f32 F F F|sqrt.rn.ftz.f32 F F|rcp.rz.ftz.f32 F F|max.ftz.f32 F F F
    set.lt.f32.f32 F F F|set.geu.u32.f32 R F F|set.num.s32.f64 R D D|set.ne.f32.s32 F R n
    cvt.ftz.f64.f32 D F|cvt.rn.ftz.f32.f64 F D|cvt.rm.ftz.f32.f64 F D|cvt.sat.f64.f64 D D
    cvt.rp.f32.f64 F D|cvt.rz.f32.f64 F D|cvt.rm.f32.f64 F D|cvt.rn.sat.f32.f64 F D
"""
_HALF = """
    add.f16 E E E|sub.f16 E E E|mul.f16 E E E|fma.rn.f16 E E E E|neg.f16 E E|add.rn.f16 E E E
    add.f16x2 G G G|sub.f16x2 G G G|mul.f16x2 G G G|fma.rn.f16x2 G G G G|neg.f16x2 G G
    abs.f16 E E|abs.f16x2 G G|min.f16 E E E|max.f16x2 G G G|max.NaN.f16 E E E|min.NaN.f16x2 G G G
    add.sat.f16 E E E|mul.ftz.f16 E E E|fma.rn.ftz.f16x2 G G G G|fma.rn.relu.f16 E E E E
    cvt.rn.f16x2.f32 G F F|cvt.rz.f16x2.f32 G F F|cvt.rn.relu.f16.f32 E F|setp.ltu.ftz.f16 P E E
    set.gt.f16.f16 E E E|mul.sat.f16x2 G G G|sub.ftz.f16x2 G G G
    cvt.rn.f16.f32 E F|cvt.rz.f16.f32 E F|cvt.rn.f16.f64 E D|cvt.f32.f16 F E|cvt.f64.f16 D E
    setp.lt.f16 P E E|setp.geu.f16 P E E|setp.nan.f16 P E E|mov.b32 G G
    mov.b16 E E|selp.b16 E E E p|cvt.rn.f16.s32 E R|cvt.rn.f16.u64 E L|cvt.rn.f16.s8 E H
"""
_WIDE = """
    mul.wide.u32 L R n|mul.wide.s32 L R n|mad.wide.s32 L R R L|mad.wide.u32 L R n L
    mul.wide.u16 R H H|mul.wide.s16 R H H|mad.wide.u16 R H H R|mad.wide.s16 R H H R
    add.sat.s32 R R n|sub.sat.s32 R R n|mad.hi.sat.s32 R R R R
    shf.l.wrap.b32 R R R w|shf.r.clamp.b32 R R R w|shf.r.wrap.b32 R R R w|shf.l.clamp.b32 R R R w
    neg.s16 H H|abs.s16 H H|neg.s32 R R|abs.s32 R R|neg.s64 L L|abs.s64 L L
    mul24.lo.s32 R R R|mul24.hi.s32 R R R|mul24.lo.u32 R R n|mul24.hi.u32 R R R
    mad24.lo.s32 R R R R|mad24.hi.u32 R R R R|mad24.hi.sat.s32 R R R R
    set.lt.u32.s32 R R n|set.hi.s32.u64 R L L|set.eq.u32.u16 R H H|set.ge.and.u32.s32 R R n p
    popc.b32 R R|popc.b64 R L|clz.b32 R R|clz.b64 R L|brev.b32 R R|brev.b64 L L
    bfind.s32 R R|bfind.u64 R L|bfind.u32 R R|bfind.s64 R L|bfind.shiftamt.u32 R R
    bfind.shiftamt.s64 R L|bmsk.clamp.b32 R R w|bmsk.wrap.b32 R R w
    bfe.u32 R R R R|bfe.s32 R R w w|bfe.s64 L L w w|bfe.u64 L L R w|bfi.b32 R R R w w
    bfi.b64 L L L w R|bfi.b32 R R R R R|dp4a.u32.u32 R R R R|dp4a.s32.u32 R R R R
    dp4a.u32.s32 R R R R|dp4a.s32.s32 R R n R|dp2a.lo.s32.u32 R R R R|dp2a.hi.u32.s32 R R R R
    dp2a.lo.u32.u32 R R R R|dp2a.hi.s32.s32 R R R R
    prmt.b32 R R R R|prmt.b32 R R R t|prmt.b32.f4e R R R w|prmt.b32.b4e R R R R|prmt.b32.rc8 R R R w
    prmt.b32.ecl R R R w|prmt.b32.ecr R R R w|prmt.b32.rc16 R R R w
    lop3.b32 R R R R t|lop3.b32 R R R n t
"""
_SPECIAL = """
    mov.u32 R %tid.x|mov.u32 R %tid.x|mov.u32 R %tid.x|mov.u32 R %tid.y|mov.u32 R %tid.z
    mov.u32 R %ctaid.x|mov.u32 R %ctaid.y|mov.u32 R %ntid.x|mov.u32 R %ntid.y|mov.u32 R %laneid
    mov.u32 R %nctaid.x|mov.u32 R %lanemask_lt|mov.u32 R %lanemask_ge|mov.u32 R %lanemask_eq
    mov.u32 R WARP_SZ|mov.u16 H %tid.x|cvt.u64.u32 L %tid.x|cvt.u32.u16 R H
"""
_PREDICATES = """
    and.pred P p p|or.pred P p p|xor.pred P p p|not.pred P p|mov.pred P p
    setp.lt.and.s32 P R n p|setp.ge.or.u32 P R n p|setp.gt.xor.f32 P F F p|setp.ltu.ftz.f32 P F F
    setp.lt.or.f64 Q D D p|setp.eq.and.b64 Q L n p|setp.lt.and.s16 Q H n !p|setp.ls.xor.u16 P H n p
"""


def _templates(text: str, **replace: str) -> list[list[str]]:
    for old, new in replace.items():
        text = text.replace(old, new)
    return [line.split() for part in text.strip().splitlines() for line in part.split("|")]


# Every type of arithmetic, and its register pool.
_HOLDS = {"16": "H", "32": "R", "64": "L"}
_INTEGER_TYPES = {f"{sign}{bits}": _HOLDS[bits] for sign in "us" for bits in _HOLDS}
_BIT_TYPES = {f"b{bits}": letter for bits, letter in _HOLDS.items()}
_FLOAT_TYPES = {"f32": "F", "f64": "D"}
# The types of conversions: a byte lies in a register of 16 bits.
_CONVERTED = {"u8": "H", "s8": "H", **_INTEGER_TYPES}


def _range(type_: str) -> tuple[int, int]:
    bits = int(type_[1:])
    return (0, 2**bits - 1) if type_[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _can_saturate(target: str, source: str) -> bool:
    """Whether .sat is permitted here: only if some value does not fit."""
    (least, most), (low, high) = _range(target), _range(source)
    return low < least or high > most


def _conversions() -> list[list[str]]:
    found = []
    for (target, to), (source, from_) in product(_CONVERTED.items(), repeat=2):
        found.append([f"cvt.{target}.{source}", to, from_])
        if _can_saturate(target, source):
            found.append([f"cvt.sat.{target}.{source}", to, from_])
    floats = {"f16": "E", **_FLOAT_TYPES}
    for (integer, letter), (float_, pool) in product(_CONVERTED.items(), floats.items()):
        for mode in ("rni", "rzi", "rmi", "rpi"):
            found.append([f"cvt.{mode}.{integer}.{float_}", letter, pool])
        if float_ == "f32":
            found.append([f"cvt.rzi.ftz.{integer}.f32", letter, pool])
        for mode in ("rn", "rz", "rm", "rp") if float_ != "f16" else ("rn",):
            found.append([f"cvt.{mode}.{float_}.{integer}", pool, letter])
    return found


def _comparisons() -> list[list[str]]:
    found = []
    for type_, letter in {**_INTEGER_TYPES, **_BIT_TYPES}.items():
        names = ["eq", "ne"]
        if type_[0] != "b":
            names += ["lt", "le", "gt", "ge"]
        if type_[0] == "u":
            names += ["lo", "ls", "hi", "hs"]
        found += [[f"setp.{name}.{type_}", "P", letter, "n"] for name in names]
    names = [
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "equ",
        "neu",
        "ltu",
        "leu",
        "gtu",
        "geu",
        "num",
        "nan",
    ]
    for (type_, letter), name in product(_FLOAT_TYPES.items(), names):
        found.append([f"setp.{name}.{type_}", "P", letter, "n"])
    return found


# By kind, so that kinds with hundreds of templates do not crowd the others out.
FAMILIES: dict[str, list[list[str]]] = {
    "integer": [
        each
        for type_, letter in _INTEGER_TYPES.items()
        for each in _templates(_INTEGER, T=type_, X=letter)
    ],
    "bits": [e for t, letter in _BIT_TYPES.items() for e in _templates(_BITS, T=t, X=letter)],
    "wide": _templates(_WIDE),
    "float": [e for t, letter in _FLOAT_TYPES.items() for e in _templates(_FLOAT, T=t, X=letter)],
    "single": _templates(_SINGLE),
    "half": _templates(_HALF),
    "convert": _conversions(),
    "special": _templates(_SPECIAL),
    "compare": _comparisons(),
    "predicate": _templates(_PREDICATES),
}

_INTEGERS = (0, 1, 2, 3, 4, 5, 7, 8, 31, 32, 100, 255, 0x7FFF, 0x8000, 0xFFFF)
EDGES = {
    "R": (*_INTEGERS, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0),
    "L": (*_INTEGERS, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 0x100000000),
    "H": _INTEGERS,
}
SINGLES = (0, 1 << 31, 0x3F800000, 0xBF000000, 0x4B800001, 0x7F800000, 1, 0x7FFFFFFF, 0x3DCCCCCD)
DOUBLES = (0, 1 << 63, 0x3FF0000000000000, 0xBFE0000000000000, 0x43E0000000000001, 1)
