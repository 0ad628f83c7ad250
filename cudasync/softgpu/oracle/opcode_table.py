"""Cellar. The function that lowers each instruction.

An opcode, type or modifier that is not in a table is refused by name: unknown input is never
ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.emission.emitter import Emitter
from cudasync.softgpu.oracle.instructions import (
    approximations,
    async_copies,
    atomics,
    bitwise,
    calls,
    comparison,
    control_flow,
    conversion,
    floating_point,
    integer,
    load_store,
    matrix_operands,
    mbarriers,
    moves,
)
from cudasync.softgpu.semantics.instruction_validity import (
    beyond_parameter,
    unfit_type,
    unknown_modifier,
)
from cudasync.softgpu.semantics.unsupported_instructions import refuse_beyond

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction

T = ScalarType
Lower: TypeAlias = Callable[[Emitter, "Instruction"], None]

_PLAIN_FLOATS = (T.F32, T.F64)
_HALF_OPCODES = frozenset({"add", "sub", "mul", "fma", "neg", "abs", "min", "max", "ex2", "tanh"})

_INTEGER: dict[str, Lower] = {
    "add": integer.add_sub,
    "addc": integer.add_sub,
    "sub": integer.add_sub,
    "subc": integer.add_sub,
    "mul": integer.multiply,
    "mad": integer.multiply,
    "madc": integer.multiply,
    "mul24": integer.multiply_24,
    "mad24": integer.multiply_24,
    "sad": integer.sum_of_difference,
    "div": integer.divide,
    "rem": integer.divide,
    "neg": integer.negate,
    "abs": integer.absolute,
    "min": integer.extreme,
    "max": integer.extreme,
    "dp4a": integer.dot_product,
    "dp2a": integer.dot_product,
    "and": bitwise.logic,
    "or": bitwise.logic,
    "xor": bitwise.logic,
    "not": bitwise.logic,
    "cnot": bitwise.logical_not,
    "shl": bitwise.shift,
    "shr": bitwise.shift,
    "shf": bitwise.funnel_shift,
    "popc": bitwise.count,
    "clz": bitwise.count,
    "bfind": bitwise.find_leading,
    "brev": bitwise.reverse,
    "bfe": bitwise.extract_field,
    "bfi": bitwise.insert_field,
    "bmsk": bitwise.make_mask,
    "lop3": bitwise.lookup,
    "prmt": bitwise.permute_bytes,
}
_FLOAT: dict[str, Lower] = {
    "add": floating_point.arithmetic,
    "sub": floating_point.arithmetic,
    "mul": floating_point.arithmetic,
    "fma": floating_point.arithmetic,
    "mad": floating_point.arithmetic,
    "div": approximations.quotient,
    "rcp": approximations.reciprocal,
    "sqrt": floating_point.arithmetic,
    "rsqrt": approximations.approximation,
    "neg": floating_point.sign,
    "abs": floating_point.sign,
    "copysign": floating_point.copysign,
    "min": floating_point.extreme,
    "max": floating_point.extreme,
    "testp": floating_point.classify,
    "sin": approximations.approximation,
    "cos": approximations.approximation,
    "ex2": approximations.approximation,
    "lg2": approximations.approximation,
    "tanh": approximations.approximation,
}
_ANY: dict[str, Lower] = {
    "setp": comparison.set_predicate,
    "set": comparison.set_number,
    "selp": comparison.select,
    "slct": comparison.select_by_sign,
    "cvt": conversion.convert,
    "mov": moves.move,
    "cvta": moves.convert_address,
    "isspacep": moves.is_in_space,
    "ld": load_store.load,
    "ldu": load_store.load,
    "st": load_store.store,
    "atom": atomics.atomic,
    "red": atomics.atomic,
    "membar": load_store.nothing,
    "fence": load_store.nothing,
    "prefetch": load_store.nothing,
    "prefetchu": load_store.nothing,
    "nanosleep": load_store.nothing,
    "pmevent": load_store.nothing,
    "bra": control_flow.branch,
    "brx": control_flow.indexed_branch,
    "ret": control_flow.leave,
    "exit": control_flow.leave,
    "trap": control_flow.trap,
    "bar": control_flow.barrier,
    "barrier": control_flow.barrier,
    "shfl": control_flow.warp,
    "vote": control_flow.warp,
    "activemask": control_flow.warp,
    "match": control_flow.warp,
    "redux": control_flow.warp,
    "elect": control_flow.warp,
    "call": calls.call,
    "cp": async_copies.copy,
    "mbarrier": mbarriers.mbarrier,
    "griddepcontrol": load_store.nothing,
    "setmaxnreg": load_store.nothing,
    "mma": matrix_operands.multiply,
    "wmma": matrix_operands.wmma,
    "ldmatrix": matrix_operands.load_tiles,
    "stmatrix": matrix_operands.store_tiles,
    "movmatrix": matrix_operands.turn_tile,
}


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
