"""Cellar. cp.async of one thread: the copy runs at once, byte by byte."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Integer, Negated, Register
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.instructions.load_store import address, address_at
from cudasync.softgpu.oracle.instructions.mbarriers import arrive

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType
_WAITS = frozenset({"commit_group", "wait_group", "wait_all"})


def copy(e: Emitter, i: Instruction) -> None:
    """Lower cp.async, its waits, and its arrivals at an mbarrier."""
    modifiers = set(i.modifiers)
    if "async" in modifiers and modifiers & _WAITS:
        return
    if {"async", "mbarrier"} <= modifiers:
        if "noinc" in modifiers:
            arrive(e, i, i.operands[0], [])
        else:
            # One more arrival is expected, and it comes at once.
            address(e, i, i.operands[0], 8, is_write=True)
    elif {"async", "global"} <= modifiers and {"ca", "cg"} & modifiers and i.operands[2:]:
        _move(e, i)
    else:
        e.refuse("this form of cp is not implemented")


def _move(e: Emitter, i: Instruction) -> None:
    target, source, size_operand, *rest = i.operands
    if "L2::cache_hint" in i.modifiers:
        rest = rest[:-1]
    sizes = (16,) if "cg" in i.modifiers else (4, 8, 16)
    if not isinstance(size_operand, Integer) or size_operand.value not in sizes or len(rest) > 1:
        e.refuse("this form of cp.async is not implemented")
    size = size_operand.value
    length = _length(e, rest[0], size) if rest else str(size)
    there = address(e, i, target, size, is_write=True)
    whole, part, done = (e.fresh(each) for each in ("whole", "part", "copied"))
    is_whole = e.value(f"icmp uge i32 {length}, {size}")
    e.line(f"br i1 {is_whole}, label %{whole}, label %{part}")
    from_global = replace(i, modifiers=("async", "global"))
    e.label(whole)
    here = address(e, from_global, source, size, is_write=False)
    for byte in range(size):
        _move_byte(e, there, here, byte)
    e.line(f"br label %{done}")
    e.label(part)
    for byte in range(size):
        e.line(f"store i8 0, ptr {e.at(there, byte)}")
    _move_part(e, from_global, source, there, length, size, done)
    e.label(done)


def _move_part(
    e: Emitter, i: Instruction, source: Operand, there: str, length: str, size: int, done: str
) -> None:
    """Copy the first `length` bytes. Each byte is checked; alignment is checked for all."""
    for byte in range(size - 1):
        more, step = e.fresh("more"), e.fresh("byte")
        e.line(f"br label %{more}")
        e.label(more)
        is_over = e.value(f"icmp ule i32 {length}, {byte}")
        e.line(f"br i1 {is_over}, label %{done}, label %{step}")
        e.label(step)
        if byte == 0:
            _check_alignment(e, i, source, size)
        here = address_at(e, i, source, str(byte), 1, is_write=False)
        value = e.value(f"load i8, ptr {here}")
        e.line(f"store i8 {value}, ptr {e.at(there, byte)}")
    e.line(f"br label %{done}")


def _check_alignment(e: Emitter, i: Instruction, source: Operand, size: int) -> None:
    """Fault if an access of all bytes would be misaligned; alignment is checked first."""
    if not e.memcheck:
        return
    assert isinstance(source, Address)
    where = e.value(f"add i64 {e.read(source.base, T.U64)}, {source.offset}")
    low_bits = e.value(f"and i64 {where}, {size - 1}")
    crooked, straight = e.fresh("crooked"), e.fresh("straight")
    is_straight = e.value(f"icmp eq i64 {low_bits}, 0")
    e.line(f"br i1 {is_straight}, label %{straight}, label %{crooked}")
    e.label(crooked)
    address(e, i, source, size, is_write=False)
    e.line(f"br label %{straight}")
    e.label(straight)


def _move_byte(e: Emitter, there: str, here: str, byte: int) -> None:
    value = e.value(f"load i8, ptr {e.at(here, byte)}")
    e.line(f"store i8 {value}, ptr {e.at(there, byte)}")


def _length(e: Emitter, operand: Operand, size: int) -> str:
    """The number of bytes to read."""
    register = operand.register if isinstance(operand, Negated) else operand
    if isinstance(register, Register) and register.type is T.PRED:
        return e.select(e.read(operand, T.PRED), "i32", "0", str(size))
    return e.read(operand, T.U32)
