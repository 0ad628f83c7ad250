"""Cellar. mov, cvta and isspacep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType, StateSpace
from cudasync.softgpu.oracle.emission.memory_layout import window

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType
S = StateSpace
_WINDOWS = (S.SHARED, S.LOCAL, S.PARAM)


def move(e: Emitter, i: Instruction) -> None:
    e.write(i.operands[0], e.read(i.operands[1], i.type), i.type)


def convert_address(e: Emitter, i: Instruction) -> None:
    """Lower cvta: window offset to generic address; cvta.to: the reverse."""
    value = e.read(i.operands[1], T.U64)
    if i.space in _WINDOWS:
        base, _ = window(e, i.space)
        value = e.value(f"{'sub' if 'to' in i.modifiers else 'add'} i64 {value}, {base}")
    e.write(i.operands[0], e.resize(value, 64, i.type), i.type)


def is_in_space(e: Emitter, i: Instruction) -> None:
    """Lower isspacep."""
    address = e.read(i.operands[1], T.U64)
    if i.space is S.GLOBAL:
        inside = [_is_inside(e, address, space) for space in _WINDOWS[:2]]
        result = e.value(f"xor i1 {e.value(f'or i1 {inside[0]}, {inside[1]}')}, true")
    elif i.space in _WINDOWS:
        result = _is_inside(e, address, i.space)
    else:
        e.refuse(f"isspacep{i.space!r} is not implemented")
    e.write(i.operands[0], result, T.PRED)


def _is_inside(e: Emitter, address: str, space: StateSpace) -> str:
    base, size = window(e, space)
    offset = e.value(f"sub i64 {address}, {base}")
    return e.value(f"icmp ult i64 {offset}, {size}")
