"""Cellar. Which function lowers which instruction.

An opcode, type or modifier that is not in a table is refused by name: what is not understood
is never ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.modifiers import beyond_parameter, unfit_type, unknown_modifier
from cudasync.softgpu.oracle import (
    atomics,
    bits,
    calls,
    compare,
    control,
    convert,
    copies,
    floating,
    integer,
    matrices,
    mbarriers,
    memory,
    moves,
)
from cudasync.softgpu.oracle.emitter import Emitter
from cudasync.softgpu.refused import refuse_beyond

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction

T = ScalarType
Lower: TypeAlias = Callable[[Emitter, "Instruction"], None]

_PLAIN_FLOATS = (T.F32, T.F64)
_HALF_OPCODES = frozenset({"add", "sub", "mul", "fma", "neg", "abs", "min", "max", "ex2", "tanh"})

_INTEGER: dict[str, Lower] = {
    "add": integer.add_sub, "addc": integer.add_sub, "sub": integer.add_sub,
    "subc": integer.add_sub, "mul": integer.multiply, "mad": integer.multiply,
    "madc": integer.multiply, "mul24": integer.multiply_24, "mad24": integer.multiply_24,
    "sad": integer.sum_of_difference, "div": integer.divide, "rem": integer.divide,
    "neg": integer.negate, "abs": integer.absolute, "min": integer.extreme,
    "max": integer.extreme, "dp4a": integer.dot_product, "dp2a": integer.dot_product,
    "and": bits.logic, "or": bits.logic, "xor": bits.logic, "not": bits.logic,
    "cnot": bits.logical_not, "shl": bits.shift, "shr": bits.shift, "shf": bits.funnel_shift,
    "popc": bits.count, "clz": bits.count, "bfind": bits.find_leading, "brev": bits.reverse,
    "bfe": bits.extract_field, "bfi": bits.insert_field, "bmsk": bits.make_mask,
    "lop3": bits.lookup, "prmt": bits.permute_bytes,
}  # fmt: skip
_FLOAT: dict[str, Lower] = {
    "add": floating.arithmetic, "sub": floating.arithmetic, "mul": floating.arithmetic,
    "fma": floating.arithmetic, "mad": floating.arithmetic, "div": floating.arithmetic,
    "rcp": floating.arithmetic, "sqrt": floating.arithmetic, "rsqrt": floating.approximation,
    "neg": floating.sign, "abs": floating.sign, "copysign": floating.copysign,
    "min": floating.extreme, "max": floating.extreme, "testp": floating.classify,
    "sin": floating.approximation, "cos": floating.approximation,
    "ex2": floating.approximation, "lg2": floating.approximation,
    "tanh": floating.approximation,
}  # fmt: skip
_ANY: dict[str, Lower] = {
    "setp": compare.set_predicate, "set": compare.set_number, "selp": compare.select,
    "slct": compare.select_by_sign, "cvt": convert.convert, "mov": moves.move,
    "cvta": moves.convert_address, "isspacep": moves.is_in_space, "ld": memory.load,
    "ldu": memory.load, "st": memory.store, "atom": atomics.atomic, "red": atomics.atomic,
    "membar": memory.nothing, "fence": memory.nothing, "prefetch": memory.nothing,
    "prefetchu": memory.nothing, "nanosleep": memory.nothing, "pmevent": memory.nothing,
    "bra": control.branch, "brx": control.indexed_branch, "ret": control.leave,
    "exit": control.leave, "trap": control.trap, "bar": control.barrier,
    "barrier": control.barrier, "shfl": control.warp, "vote": control.warp,
    "activemask": control.warp, "match": control.warp, "redux": control.warp,
    "elect": control.warp, "call": calls.call,
    "cp": copies.copy, "mbarrier": mbarriers.mbarrier, "griddepcontrol": memory.nothing,
    "setmaxnreg": memory.nothing, "mma": matrices.multiply, "wmma": matrices.wmma,
    "ldmatrix": matrices.load_tiles, "stmatrix": matrices.store_tiles,
    "movmatrix": matrices.turn_tile,
}  # fmt: skip


def lower(e: Emitter, i: Instruction) -> None:
    """Append the code of one instruction, without its guard."""
    refuse_beyond(i, e.file)
    modifier = unknown_modifier(i)
    if modifier is not None:
        e.refuse(f"{i.opcode} with .{modifier} is not implemented")
    unfit = unfit_type(i)
    if unfit is not None:
        e.refuse(f"{i.opcode} does not take .{unfit}")
    beyond = beyond_parameter(e.function, i)
    if beyond is not None:
        e.refuse(f"an access beyond the end of {beyond}")
    handler = _ANY.get(i.opcode)
    if handler is None and i.types and i.type.is_float:
        handler = _FLOAT.get(i.opcode)
        if i.type not in _PLAIN_FLOATS and not (
            i.type in (T.F16, T.BF16) and i.opcode in _HALF_OPCODES
        ):
            handler = None
    elif handler is None:
        handler = _INTEGER.get(i.opcode)
    if handler is None:
        type_ = f" on {i.type!r}" if i.types else ""
        e.refuse(f"instruction {i.opcode}{type_} is not implemented")
    handler(e, i)
