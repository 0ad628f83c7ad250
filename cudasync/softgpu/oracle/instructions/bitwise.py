"""Cellar. Logic, shifts and bit fields: PTX ISA, "Logic and Shift Instructions"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer, Pair, Sink
from cudasync.ptx.types import ScalarType

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType


def logic(e: Emitter, i: Instruction) -> None:
    """Lower and, or, xor, not: on bits and on predicates."""
    a = e.read(i.operands[1], i.type)
    operation, b = ("xor", "-1") if i.opcode == "not" else (i.opcode, "")
    if i.opcode != "not":
        b = e.read(i.operands[2], i.type)
    elif i.type is T.PRED:
        b = "true"
    e.write(i.operands[0], e.value(f"{operation} i{i.type.bits} {a}, {b}"), i.type)


def logical_not(e: Emitter, i: Instruction) -> None:
    """Lower cnot: 1 for 0, otherwise 0."""
    is_zero = e.value(f"icmp eq i{i.type.bits} {e.read(i.operands[1], i.type)}, 0")
    e.write(i.operands[0], e.value(f"zext i1 {is_zero} to i{i.type.bits}"), i.type)


def shift(e: Emitter, i: Instruction) -> None:
    """Lower shl, shr: amounts are unsigned 32-bit numbers; amounts beyond the width clear all."""
    bits = i.type.bits
    amount = e.read(i.operands[2], T.U32)
    last = e.value(f"icmp ult i32 {amount}, {bits}")
    safe = e.resize(e.select(last, "i32", amount, str(bits - 1)), 32, T(f"b{bits}"))
    a = e.read(i.operands[1], i.type)
    if i.opcode == "shr" and i.type.is_signed:
        # A shift by one less than the width leaves copies of the sign, as any larger shift would.
        e.write(i.operands[0], e.value(f"ashr i{bits} {a}, {safe}"), i.type)
        return
    shifted = e.value(f"{'shl' if i.opcode == 'shl' else 'lshr'} i{bits} {a}, {safe}")
    e.write(i.operands[0], e.select(last, f"i{bits}", shifted, "0"), i.type)


def funnel_shift(e: Emitter, i: Instruction) -> None:
    """Lower shf: shift the 64-bit number b:a; .l keeps its high word, .r its low word."""
    low = e.value(f"zext i32 {e.read(i.operands[1], T.B32)} to i64")
    high = e.value(f"zext i32 {e.read(i.operands[2], T.B32)} to i64")
    both = e.value(f"or i64 {low}, {e.value(f'shl i64 {high}, 32')}")
    amount = e.read(i.operands[3], T.U32)
    if "wrap" in i.modifiers:
        amount = e.value(f"and i32 {amount}, 31")
    else:
        amount = e.select(e.value(f"icmp ugt i32 {amount}, 32"), "i32", "32", amount)
    amount = e.value(f"zext i32 {amount} to i64")
    if "l" in i.modifiers:
        both = e.value(f"lshr i64 {e.value(f'shl i64 {both}, {amount}')}, 32")
    else:
        both = e.value(f"lshr i64 {both}, {amount}")
    e.write(i.operands[0], e.value(f"trunc i64 {both} to i32"), T.B32)


def count(e: Emitter, i: Instruction) -> None:
    """Lower popc, clz: the result is a .u32, whatever the width of the source."""
    width = f"i{i.type.bits}"
    a = e.read(i.operands[1], i.type)
    if i.opcode == "popc":
        number = e.call(width, f"llvm.ctpop.{width}", (width, a))
    else:
        number = e.call(width, f"llvm.ctlz.{width}", (width, a), ("i1", "false"))
    e.write(i.operands[0], e.resize(number, i.type.bits, T.U32), T.U32)


def find_leading(e: Emitter, i: Instruction) -> None:
    """Lower bfind: the highest bit that is not a copy of the sign; -1 if there is none."""
    bits, width = i.type.bits, f"i{i.type.bits}"
    a = e.read(i.operands[1], i.type)
    if i.type.is_signed:
        is_negative = e.value(f"icmp slt {width} {a}, 0")
        a = e.select(is_negative, width, e.value(f"xor {width} {a}, -1"), a)
    leading = e.call(width, f"llvm.ctlz.{width}", (width, a), ("i1", "false"))
    position = leading
    if "shiftamt" not in i.modifiers:
        position = e.value(f"sub {width} {bits - 1}, {leading}")
    is_none = e.value(f"icmp eq {width} {a}, 0")
    result = e.resize(e.select(is_none, width, "-1", position), bits, T.U32)
    e.write(i.operands[0], result, T.U32)


def reverse(e: Emitter, i: Instruction) -> None:
    width = f"i{i.type.bits}"
    a = e.read(i.operands[1], i.type)
    e.write(i.operands[0], e.call(width, f"llvm.bitreverse.{width}", (width, a)), i.type)


def _byte(e: Emitter, i: Instruction, index: int) -> str:
    """Bits 0 to 7 of a position or length operand; in 64-bit forms 255 for anything greater.

    The ISA has bits 0 to 7 for both, but hardware does not cut them off in 64-bit forms.
    """
    value = e.read(i.operands[index], T.U32)
    if i.type.bits == 64:
        return e.select(e.value(f"icmp ugt i32 {value}, 255"), "i32", "255", value)
    return e.value(f"and i32 {value}, 255")


def _field_mask(e: Emitter, length: str) -> str:
    """`length` (an i32 up to 255) ones from bit 0, as an i512 wide enough for any shift."""
    wide = e.value(f"zext i32 {length} to i512")
    return e.value(f"sub i512 {e.value(f'shl i512 1, {wide}')}, 1")


def extract_field(e: Emitter, i: Instruction) -> None:
    """Lower bfe: bits beyond the source are copies of its sign (.s) or zero (.u)."""
    bits, width = i.type.bits, f"i{i.type.bits}"
    position, length = _byte(e, i, 2), _byte(e, i, 3)
    a = e.read(i.operands[1], i.type)
    # The source is extended beyond any position, so it already holds the bits "beyond" it.
    wide = e.value(f"{'sext' if i.type.is_signed else 'zext'} {width} {a} to i512")
    moved = e.value(f"lshr i512 {wide}, {e.value(f'zext i32 {position} to i512')}")
    mask = _field_mask(e, length)
    field = e.value(f"and i512 {moved}, {mask}")
    if i.type.is_signed:
        # The sign is the field's highest bit, or the source's if the field reaches beyond it.
        last = e.value(f"sub i32 {e.value(f'add i32 {position}, {length}')}, 1")
        beyond = e.value(f"icmp ugt i32 {last}, {bits - 1}")
        last = e.select(beyond, "i32", str(bits - 1), last)
        sign = e.value(f"lshr i512 {wide}, {e.value(f'zext i32 {last} to i512')}")
        is_empty = e.value(f"icmp eq i32 {length}, 0")
        is_set = e.select(is_empty, "i1", "false", e.value(f"trunc i512 {sign} to i1"))
        filled = e.value(f"or i512 {field}, {e.value(f'xor i512 {mask}, -1')}")
        field = e.select(is_set, "i512", filled, field)
    e.write(i.operands[0], e.value(f"trunc i512 {field} to {width}"), i.type)


def insert_field(e: Emitter, i: Instruction) -> None:
    """Lower bfi: place the low bits of a into b; bits beyond the width are lost."""
    width = f"i{i.type.bits}"
    a = e.value(f"zext {width} {e.read(i.operands[1], i.type)} to i512")
    b = e.value(f"zext {width} {e.read(i.operands[2], i.type)} to i512")
    position = e.value(f"zext i32 {_byte(e, i, 3)} to i512")
    mask = e.value(f"shl i512 {_field_mask(e, _byte(e, i, 4))}, {position}")
    moved = e.value(f"and i512 {e.value(f'shl i512 {a}, {position}')}, {mask}")
    kept = e.value(f"and i512 {b}, {e.value(f'xor i512 {mask}, -1')}")
    result = e.value(f"trunc i512 {e.value(f'or i512 {kept}, {moved}')} to {width}")
    e.write(i.operands[0], result, i.type)


def make_mask(e: Emitter, i: Instruction) -> None:
    """Lower bmsk: `length` ones from bit `position`; .wrap takes both modulo 32."""
    position, length = e.read(i.operands[1], T.U32), e.read(i.operands[2], T.U32)
    if "wrap" in i.modifiers:
        position = e.value(f"and i32 {position}, 31")
        length = e.value(f"and i32 {length}, 31")
    else:
        position = e.select(e.value(f"icmp ugt i32 {position}, 32"), "i32", "32", position)
        length = e.select(e.value(f"icmp ugt i32 {length}, 32"), "i32", "32", length)
    mask = _field_mask(e, length)
    moved = e.value(f"shl i512 {mask}, {e.value(f'zext i32 {position} to i512')}")
    e.write(i.operands[0], e.value(f"trunc i512 {moved} to i32"), T.B32)


def lookup(e: Emitter, i: Instruction) -> None:
    """Lower lop3: bit (a<<2 | b<<1 | c) of the table, for each bit; also with a predicate."""
    offset = 1 if isinstance(i.operands[0], Pair) else 0
    a, b, c = (e.read(i.operands[index], T.B32) for index in (1, 2, 3))
    table = i.operands[4]
    if not isinstance(table, Integer):
        e.refuse("the table of lop3 must be a constant")
    result = "0"
    for row in range(8):
        if not table.value >> row & 1:
            continue
        term = "-1"
        for value, is_set in ((a, row & 4), (b, row & 2), (c, row & 1)):
            literal = value if is_set else e.value(f"xor i32 {value}, -1")
            term = e.value(f"and i32 {term}, {literal}")
        result = e.value(f"or i32 {result}, {term}")
    target = i.operands[0]
    if not offset:
        e.write(target, result, T.B32)
        return
    assert isinstance(target, Pair)
    operation = next(m for m in i.modifiers if m in ("or", "and"))
    is_any = e.value(f"icmp ne i32 {result}, 0")
    combined = e.value(f"{operation} i1 {is_any}, {e.read(i.operands[5], T.PRED)}")
    if not isinstance(target.first, Sink):
        e.write(target.first, result, T.B32)
    e.write(target.second, combined, T.PRED)


# prmt: for each mode and each value of the selector's low bits, the bytes of b:a to pick.
_MODES: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}


def permute_bytes(e: Emitter, i: Instruction) -> None:
    """Lower prmt: pick four bytes from the eight of b:a."""
    low = e.value(f"zext i32 {e.read(i.operands[1], T.B32)} to i64")
    high = e.value(f"zext i32 {e.read(i.operands[2], T.B32)} to i64")
    bytes_ = e.value(f"or i64 {low}, {e.value(f'shl i64 {high}, 32')}")
    selector = e.read(i.operands[3], T.B32)
    mode = next((m for m in i.modifiers if m in _MODES), None)
    result = "0"
    for place in range(4):
        if mode is None:
            nibble = e.value(f"lshr i32 {selector}, {4 * place}")
            index = e.value(f"and i32 {nibble}, 7")
            replicate = e.value(f"trunc i32 {e.value(f'lshr i32 {nibble}, 3')} to i1")
        else:
            row = e.value(f"and i32 {selector}, 3")
            index = "0"
            for number, picks in enumerate(_MODES[mode]):
                is_row = e.value(f"icmp eq i32 {row}, {number}")
                index = e.select(is_row, "i32", str(picks[place]), index)
            replicate = "false"
        start = e.value(f"zext i32 {e.value(f'mul i32 {index}, 8')} to i64")
        byte = e.value(f"trunc i64 {e.value(f'lshr i64 {bytes_}, {start}')} to i8")
        byte = e.select(replicate, "i8", e.value(f"ashr i8 {byte}, 7"), byte)
        moved = e.value(f"shl i32 {e.value(f'zext i8 {byte} to i32')}, {8 * place}")
        result = e.value(f"or i32 {result}, {moved}")
    e.write(i.operands[0], result, T.B32)
