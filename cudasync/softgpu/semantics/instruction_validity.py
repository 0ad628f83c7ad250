"""Cellar. Validity of instructions: modifiers, types and offsets that every lowering refuses.

Every lowering refuses entries that are not in these tables. An unknown modifier is never ignored,
because it may change the result, and emitters may rely on the types of their operands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Symbol
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.semantics.matrix_forms import MATRIX_MODIFIERS
from cudasync.softgpu.semantics.mbarrier_layout import OPERATIONS

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Instruction

_SPACES = {"global", "shared", "shared::cta", "local", "const", "param", "param::entry"}
_ORDERS = {
    "weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "mmio",
    "cta", "gpu", "sys", "gl", "cluster",
}  # fmt: skip
_CACHES = {
    "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_normal", "L1::evict_unchanged",
    "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::64B", "L2::128B", "L2::256B",
    "L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::cache_hint",
}  # fmt: skip
_ROUNDINGS = {"rn", "rz", "rm", "rp"}
_APPROXIMATE = {"approx", "full", "ftz", "sat"}

_COMPARISONS = {
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs",
    "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
}  # fmt: skip
_ATOMIC_OPERATIONS = {
    "add", "min", "max", "exch", "cas", "and", "or", "xor", "inc", "dec",
}  # fmt: skip
# Fences for hardware engines that are not modelled, so these modifiers order nothing more.
_PROXIES = {
    "proxy", "async", "async::generic", "alias", "global", "shared::cta", "mbarrier_init",
}  # fmt: skip
_COPIES = {
    "async", "ca", "cg", "shared", "shared::cta", "global", "L2::64B", "L2::128B", "L2::256B",
    "L2::cache_hint", "commit_group", "wait_group", "wait_all", "mbarrier", "arrive", "noinc",
}  # fmt: skip
_MBARRIER_ORDERS = {"shared", "shared::cta", "release", "acquire", "relaxed", "cta", "cluster"}
_TILES = {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta"}

_MODIFIERS: dict[str, set[str] | frozenset[str]] = {
    "add": {"sat", "cc", "ftz", *_ROUNDINGS}, "sub": {"sat", "cc", "ftz", *_ROUNDINGS},
    "addc": {"cc"}, "subc": {"cc"}, "madc": {"cc", "lo", "hi"},
    "mul": {"lo", "hi", "wide", "ftz", "sat", *_ROUNDINGS},
    "mad": {"lo", "hi", "wide", "ftz", "sat", "cc", *_ROUNDINGS},
    "mul24": {"lo", "hi"}, "mad24": {"lo", "hi", "sat"},
    "fma": {"ftz", "sat", "relu", *_ROUNDINGS}, "div": {*_APPROXIMATE, *_ROUNDINGS},
    "rcp": {*_APPROXIMATE, *_ROUNDINGS}, "sqrt": {*_APPROXIMATE, *_ROUNDINGS},
    "rsqrt": _APPROXIMATE, "sin": _APPROXIMATE, "cos": _APPROXIMATE, "ex2": _APPROXIMATE,
    "lg2": _APPROXIMATE, "tanh": _APPROXIMATE, "neg": {"ftz"}, "abs": {"ftz"},
    "min": {"ftz", "NaN"}, "max": {"ftz", "NaN"}, "dp2a": {"lo", "hi"},
    "shf": {"l", "r", "wrap", "clamp"}, "bfind": {"shiftamt"}, "bmsk": {"wrap", "clamp"},
    "lop3": {"or", "and", "BoolOp"}, "prmt": {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"},
    "testp": {"finite", "infinite", "number", "notanumber", "normal", "subnormal"},
    "setp": {*_COMPARISONS, "and", "or", "xor", "ftz"},
    "set": {*_COMPARISONS, "and", "or", "xor", "ftz"}, "slct": {"ftz"},
    "cvt": {*_ROUNDINGS, "rna", "rni", "rzi", "rmi", "rpi", "ftz", "sat", "satfinite", "relu"},
    "cvta": {"to", *_SPACES}, "isspacep": _SPACES,
    "ld": {*_SPACES, *_ORDERS, *_CACHES, "v2", "v4", "v8"},
    "ldu": {"global", "v2", "v4"},
    "st": {*_SPACES, *_ORDERS, *_CACHES, "v2", "v4", "v8"},
    "atom": {*_SPACES, *_ORDERS, *_ATOMIC_OPERATIONS, "noftz", "L2::cache_hint"},
    "red": {*_SPACES, *_ORDERS, *_ATOMIC_OPERATIONS, "noftz", "L2::cache_hint"},
    "membar": _ORDERS, "fence": {*_ORDERS, *_PROXIES},
    "prefetch": {*_SPACES, "L1", "L2", "L2::evict_last", "L2::evict_normal"},
    "prefetchu": {"L1"}, "bra": {"uni"}, "brx": {"idx", "uni"}, "ret": {"uni"}, "call": {"uni"},
    "bar": {"sync", "arrive", "red", "popc", "and", "or", "warp", "cta"},
    "barrier": {"sync", "arrive", "red", "popc", "and", "or", "aligned", "cta"},
    "shfl": {"sync", "up", "down", "bfly", "idx"},
    "vote": {"sync", "all", "any", "uni", "ballot"}, "match": {"sync", "any", "all"},
    "redux": {"sync", "add", "min", "max", "and", "or", "xor", "abs", "NaN"}, "elect": {"sync"},
    "cp": _COPIES, "mbarrier": {*OPERATIONS, "parity", "noComplete", *_MBARRIER_ORDERS},
    "griddepcontrol": {"launch_dependents", "wait"},
    "setmaxnreg": {"inc", "dec", "sync", "aligned"},
    "mma": MATRIX_MODIFIERS, "wmma": {*MATRIX_MODIFIERS, *_SPACES},
    "ldmatrix": _TILES, "stmatrix": _TILES, "movmatrix": {"sync", "aligned", "m8n8", "trans"},
}  # fmt: skip


def unknown_modifier(instruction: Instruction) -> str | None:
    """The first unknown modifier; None if all are known."""
    known = _MODIFIERS.get(instruction.opcode, ())
    return next((each for each in instruction.modifiers if each not in known), None)


_WORDS = "u32 s32 u64 s64"
_INTEGERS = f"u16 s16 {_WORDS}"
_HALVES = "f16 f16x2 bf16 bf16x2"
_SINGLES = "f32 f64"
_BITS = "b16 b32 b64"

# The types of the PTX ISA, by instruction. For other opcodes, the emitters decide.
_TYPES: dict[str, frozenset[str]] = {
    name: frozenset(types.split())
    for names, types in {
        "add sub mul mad min max": f"{_INTEGERS} {_HALVES} {_SINGLES}",
        "neg abs": f"s16 s32 s64 {_HALVES} {_SINGLES}",
        "addc subc madc bfind bfe": _WORDS,
        "mul24 mad24 dp4a dp2a": "u32 s32",
        "sad rem": _INTEGERS,
        "div": f"{_INTEGERS} {_SINGLES}",
        "fma": f"{_HALVES} {_SINGLES}",
        "rcp sqrt rsqrt testp copysign": _SINGLES,
        "sin cos lg2": "f32",
        "ex2 tanh": f"f32 {_HALVES}",
        "and or xor not": f"pred {_BITS}",
        "cnot shl": _BITS,
        "shr": f"{_BITS} {_INTEGERS}",
        "popc clz brev bfi": "b32 b64",
        "shf prmt lop3 bmsk": "b32",
        "setp": f"{_BITS} {_INTEGERS} {_HALVES} {_SINGLES}",
        "set": f"{_BITS} {_INTEGERS} {_HALVES} {_SINGLES}",
        "selp": f"{_BITS} {_INTEGERS} {_SINGLES}",
        "slct": f"{_BITS} {_INTEGERS} {_SINGLES}",
        "shfl": "b32",
        "vote": "pred b32",
        "redux": "u32 s32 b32 f32",
        "match": "b32 b64",
    }.items()
    for name in names.split()
}


def unfit_type(instruction: Instruction) -> str | None:
    """The first type that the PTX ISA does not allow for this instruction; None if all fit."""
    known = _TYPES.get(instruction.opcode)
    if known is None:
        return None
    return next((each.value for each in instruction.types if each.value not in known), None)


def beyond_parameter(function: Function, instruction: Instruction) -> str | None:
    """The parameter that an access by name exceeds; None if there is none.

    Parameters are accessed only by name and constant offset, so there is no check at run time.
    """
    if instruction.opcode not in ("ld", "st") or not instruction.types:
        return None
    size = instruction.type.size * instruction.vector_size
    local = [each for each in function.variables if each.space is StateSpace.PARAM]
    for operand in instruction.operands:
        if isinstance(operand, Address) and isinstance(operand.base, Symbol):
            begin = operand.base.offset + operand.offset
            for each in (*function.parameters, *function.results, *local):
                if each.name == operand.base.name and not 0 <= begin <= each.size - size:
                    return each.name
    return None
