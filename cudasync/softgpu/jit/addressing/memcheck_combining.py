"""Cellar, jit. Combines the checks of accesses to shared memory.

The shared window is one range. So accesses within a node from one base register at constant offsets
all lie in the window exactly if their first and last byte do. The first access checks for all of
them: accesses that a kernel unrolls sixteen times are checked once. If that check fails, each is
checked in its order, so that the fault names the right access.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Register, Symbol
from cudasync.ptx.liveness import defs
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.jit.addressing.address_bounds import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.ptx.ir import Instruction


@dataclass(frozen=True, slots=True)
class Member:
    """One access: its position in the body, its offset from the leader's address, its size."""

    position: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Group:
    """Accesses in order; the first is the leader. `span` is relative to the leader's address."""

    members: tuple[Member, ...]
    span: Span


def find_groups(body: Sequence[Instruction], start: int, end: int) -> dict[int, Group]:
    """The group of each access in instructions `start` to `end`, by position, if it has one."""
    found: dict[int, Group] = {}
    # Position, offset and size of accesses, by base register, while the base is unchanged.
    open_: dict[str, list[tuple[int, int, int]]] = {}

    def close(base: str) -> None:
        accesses = open_.pop(base, [])
        if len(accesses) < 2:
            return
        origin = accesses[0][1]
        members = tuple(Member(p, offset - origin, size) for p, offset, size in accesses)
        # Aligning the leader for the widest then aligns all; otherwise each is checked alone.
        if any(member.offset % member.size for member in members):
            return
        span = Span(
            min(member.offset for member in members),
            max(member.offset + member.size for member in members),
            max(member.size for member in members),
        )
        group = Group(members, span)
        found.update((member.position, group) for member in members)

    for position in range(start, end):
        instruction = body[position]
        access = _access(instruction)
        if access is not None:
            base, offset, size = access
            open_.setdefault(base, []).append((position, offset, size))
        for register in defs(instruction):
            close(register.name)
    for base in list(open_):
        close(base)
    return found


def _access(instruction: Instruction) -> tuple[str, int, int] | None:
    """Base, offset and size of an unguarded load or store of shared memory."""
    if instruction.opcode not in ("ld", "st") or instruction.guard is not None:
        return None
    if instruction.space is not StateSpace.SHARED or not instruction.types:
        return None
    operand = instruction.operands[0 if instruction.opcode == "st" else 1]
    if not isinstance(operand, Address) or not isinstance(operand.base, Register | Symbol):
        return None
    return operand.base.name, operand.offset, instruction.type.size * instruction.vector_size
