"""Floor 0. Loads that only guess what a compare-and-swap at the same address will find.

    ld.global.u32       %r1, [%rd1];
    $again: add.u32     %r2, %r1, 1;
    atom.global.cas.b32 %r3, [%rd1], %r1, %r2;
    setp.ne.u32         %p1, %r1, %r3;
    mov.u32             %r1, %r3;
    @%p1 bra            $again;

CUDA's programming guide writes atomics so that the hardware does not have. A stale guess costs one
more trip through the loop, so the load does not race with atomics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from cudasync.ptx.ir import Address, Instruction, Integer, Register
from cudasync.ptx.liveness import defs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudasync.ptx.ir import Function, Operand

_Writes: TypeAlias = "dict[str, list[Instruction]]"
_MOST_MOVES: Final = 16


def mark_guesses(function: Function) -> None:
    """Set `is_guess` of these loads. A function's instructions are marked alike each time."""
    swaps = [each for each in function.body if each.opcode == "atom" and "cas" in each.modifiers]
    if not swaps:
        return
    writes: _Writes = {}
    for each in function.body:
        for register in defs(each):
            writes.setdefault(register.name, []).append(each)
    for swap in swaps:
        for each in _origins(swap, writes):
            if _is_load_at(each, swap, writes):
                # Every thread finds the same answer, at any time.
                object.__setattr__(each, "is_guess", True)


def _origins(swap: Instruction, writes: _Writes) -> Iterator[Instruction]:
    """The instructions from which moves bring the value that `swap` expects."""
    waiting = [swap.operands[2]]
    seen = set()
    while waiting:
        operand = waiting.pop()
        if not isinstance(operand, Register) or operand.name in seen:
            continue
        seen.add(operand.name)
        for each in writes.get(operand.name, ()):
            yield each
            if each.opcode == "mov":
                waiting.append(each.operands[1])


def _is_load_at(each: Instruction, swap: Instruction, writes: _Writes) -> bool:
    """Whether it loads exactly the bytes that `swap` compares."""
    return (
        each.opcode == "ld"
        and each.vector_size == 1
        and each.type.size == swap.type.size
        and _place(each.operands[1], writes) == _place(swap.operands[1], writes)
    )


def _place(operand: Operand, writes: _Writes) -> tuple[Operand, int]:
    """An address as the symbol, or the register, from which it was moved, and an offset."""
    base, offset = operand, 0
    if isinstance(operand, Address):
        base, offset = operand.base, operand.offset
    # Hostile text may move registers in a circle.
    for _ in range(_MOST_MOVES):
        if not isinstance(base, Register):
            break
        match writes.get(base.name):
            case [Instruction(opcode="mov" | "cvta", guard=None, operands=(_, source))]:
                base = source
            case [Instruction(opcode="add", guard=None, operands=(_, source, Integer(value=more)))]:
                base, offset = source, offset + more
            case _:
                break
    return base, offset
