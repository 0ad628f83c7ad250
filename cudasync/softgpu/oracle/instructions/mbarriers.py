"""Cellar. mbarrier, for one thread: a word is loaded, changed and stored.

Nothing can come between, because one thread runs at a time. `softgpu.semantics.mbarrier_layout` has
the fields of the word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.instructions.load_store import address
from cudasync.softgpu.semantics.mbarrier_layout import (
    BYTES_MASK,
    BYTES_SHIFT,
    COUNT_MASK,
    PARITY_SHIFT,
    PENDING_SHIFT,
    operation_of,
)

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType


def mbarrier(e: Emitter, i: Instruction) -> None:
    """Lower all instructions of the family."""
    operation = operation_of(i.modifiers)
    if i.types != (T.B64,) or not operation:
        e.refuse("this form of mbarrier is not implemented")
    operands = list(i.operands)
    match operation:
        case "init":
            where, count = operands
            place = address(e, i, where, 8, is_write=True)
            number = _count(e, count)
            _store(e, place, number, number, "0", "0")
        case "inval":
            (where,) = operands
            _store(e, address(e, i, where, 8, is_write=True), "0", "0", "0", "0")
        case "expect_tx" | "complete_tx":
            where, count = operands
            place = address(e, i, where, 8, is_write=True)
            _, expected, pending, missing, parity = _load(e, place)
            how = "add" if operation == "expect_tx" else "sub"
            missing = e.value(f"{how} i64 {missing}, {_count(e, count)}")
            settle = _settle if operation == "complete_tx" else _store
            settle(e, place, expected, pending, missing, parity)
        case "arrive" | "arrive_drop":
            target, where, *counts = operands
            e.write(target, arrive(e, i, where, counts), T.B64)
        case "pending_count":
            target, state = operands
            moved = e.value(f"lshr i64 {e.read(state, T.B64)}, {PENDING_SHIFT}")
            kept = e.value(f"and i64 {moved}, {COUNT_MASK}")
            e.write(target, e.value(f"trunc i64 {kept} to i32"), T.U32)
        case _:
            _test(e, i, operands)


def arrive(e: Emitter, i: Instruction, where: Operand, counts: list[Operand]) -> str:
    """Arrive at the object; return the object's old value."""
    place = address(e, i, where, 8, is_write=True)
    word, expected, pending, missing, parity = _load(e, place)
    if "expect_tx" in i.modifiers:
        missing = e.value(f"add i64 {missing}, {_count(e, counts[0])}")
        counts = []
    count = _count(e, counts[0] if counts else Integer(1))
    if "arrive_drop" in i.modifiers:
        expected = e.value(f"sub i64 {expected}, {count}")
    pending = e.value(f"sub i64 {pending}, {count}")
    _settle(e, place, expected, pending, missing, parity)
    return word


def _count(e: Emitter, operand: Operand) -> str:
    return e.value(f"zext i32 {e.read(operand, T.U32)} to i64")


def _load(e: Emitter, place: str) -> tuple[str, str, str, str, str]:
    """The word and its fields."""
    word = e.value(f"load i64, ptr {place}, align 1")
    expected = e.value(f"and i64 {word}, {COUNT_MASK}")
    pending = e.value(f"and i64 {e.value(f'lshr i64 {word}, {PENDING_SHIFT}')}, {COUNT_MASK}")
    missing = e.value(f"and i64 {e.value(f'lshr i64 {word}, {BYTES_SHIFT}')}, {BYTES_MASK}")
    return word, expected, pending, missing, e.value(f"lshr i64 {word}, {PARITY_SHIFT}")


def _settle(e: Emitter, place: str, expected: str, pending: str, missing: str, parity: str) -> None:
    """Store the fields; if nothing is missing, the phase ends and they start the next one."""
    pending = e.value(f"and i64 {pending}, {COUNT_MASK}")
    missing = e.value(f"and i64 {missing}, {BYTES_MASK}")
    is_over = e.value(f"icmp eq i64 {e.value(f'or i64 {pending}, {missing}')}, 0")
    pending = e.select(is_over, "i64", expected, pending)
    parity = e.value(f"xor i64 {parity}, {e.value(f'zext i1 {is_over} to i64')}")
    _store(e, place, expected, pending, missing, parity)


def _store(e: Emitter, place: str, expected: str, pending: str, missing: str, parity: str) -> None:
    word = "0"
    for field, mask, shift in (
        (expected, COUNT_MASK, 0),
        (pending, COUNT_MASK, PENDING_SHIFT),
        (missing, BYTES_MASK, BYTES_SHIFT),
        (parity, 1, PARITY_SHIFT),
    ):
        kept = e.value(f"and i64 {field}, {mask}")
        word = e.value(f"or i64 {word}, {e.value(f'shl i64 {kept}, {shift}')}")
    e.line(f"store i64 {word}, ptr {place}, align 1")


def _test(e: Emitter, i: Instruction, operands: list[Operand]) -> None:
    """Lower test_wait, try_wait: has the phase with this parity or state ended?"""
    target, where, phase = operands[:3]
    if "parity" in i.modifiers:
        asked = e.value(f"and i64 {_count(e, phase)}, 1")
    else:
        asked = e.value(f"lshr i64 {e.read(phase, T.B64)}, {PARITY_SHIFT}")
    *_, parity = _load(e, address(e, i, where, 8, is_write=False))
    e.write(target, e.value(f"icmp ne i64 {parity}, {asked}"), T.PRED)
