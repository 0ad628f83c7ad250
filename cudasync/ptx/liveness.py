"""Floor 0. Which registers an instruction uses and defines, and where each is live.

A guarded instruction leaves its result unchanged in threads whose guard is false. So the registers
that it defines count as used, too. The analysis is backward data-flow over blocks. Inside, sets of
registers are the bits of one integer, because a kernel may have thousands of registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Negated, Operand, Pair, Register, Vector
from cudasync.ptx.opcodes import has_result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.cfg import Block, ControlFlow
    from cudasync.ptx.ir import Instruction


def defs(instruction: Instruction) -> tuple[Register, ...]:
    """The registers that `instruction` writes."""
    known = instruction.defs
    if known is None:
        known = _defs(instruction)
        # Every thread computes the same value, at any time.
        object.__setattr__(instruction, "defs", known)
    return known


def _defs(instruction: Instruction) -> tuple[Register, ...]:
    if not instruction.operands or not has_result(instruction.opcode, instruction.modifiers):
        return ()
    first = instruction.operands[0]
    if isinstance(first, Register):
        return (first,)
    if isinstance(first, Address):
        return ()
    return _registers((first,))


def uses(instruction: Instruction) -> tuple[Register, ...]:
    """The registers whose values `instruction` needs, including its guard."""
    known = instruction.uses
    if known is None:
        known = _uses(instruction)
        object.__setattr__(instruction, "uses", known)
    return known


def _uses(instruction: Instruction) -> tuple[Register, ...]:
    defined = defs(instruction)
    # If the first operand is no result, it is read like the others.
    skip = 1 if defined or _is_discarded(instruction) else 0
    used = _registers(instruction.operands[skip:])
    if instruction.guard is not None:
        return (*used, instruction.guard.register, *defined)
    if instruction.opcode == "wgmma":
        return (*used, *defined)
    return used


def _is_discarded(instruction: Instruction) -> bool:
    """Whether the first operand is a result without registers: `_`, or a call's `(param)`."""
    return (
        bool(instruction.operands)
        and not isinstance(instruction.operands[0], Address)
        and has_result(instruction.opcode, instruction.modifiers)
    )


def _registers(operands: Iterable[Operand]) -> tuple[Register, ...]:
    found: list[Register] = []
    for operand in operands:
        match operand:
            case Register():
                found.append(operand)
            case Address(base=Register() as base):
                found.append(base)
            case Vector(elements=elements):
                found += _registers(elements)
            case Pair(first=first, second=second):
                found += _registers((first, second))
            case Negated(register=register):
                found.append(register)
    return tuple(found)


class Liveness:
    """Where each register of a function is live."""

    def __init__(self, flow: ControlFlow) -> None:
        self._flow = flow
        self._registers = tuple(flow.function.registers.values())
        bit = {register.name: 1 << index for index, register in enumerate(self._registers)}
        self._uses = [_bits(bit, uses(each)) for each in flow.function.body]
        self._defs = [_bits(bit, defs(each)) for each in flow.function.body]
        self._live_in = [0] * (len(flow.blocks) + 1)
        # By instruction, see `keep_before`.
        self._kept: dict[int, int] = {}
        self._settle()

    def live_in(self, block: int) -> frozenset[Register]:
        """The registers whose values at the block's beginning may still be needed."""
        return self._named(self._live_in[block])

    def live_out(self, block: int) -> frozenset[Register]:
        """The registers whose values at the block's end may still be needed."""
        return self._named(self._live_out(block))

    def before(self, index: int) -> frozenset[Register]:
        """The registers whose values before instruction `index` may still be needed."""
        kept = self._kept.get(index)
        if kept is not None:
            return self._named(kept)
        block = self._flow.blocks[self._flow.block_of[index]]
        if index == block.start:
            return self._named(self._live_in[block.index])
        return self._named(self._before(index, block.end, self._live_out(block.index)))

    def keep_before(self, indices: Iterable[int]) -> None:
        """Compute in one pass the answers of `before` for these instructions, which may be many."""
        wanted: dict[int, list[int]] = {}
        for index in sorted(indices, reverse=True):
            wanted.setdefault(self._flow.block_of[index], []).append(index)
        for number, within in wanted.items():
            block = self._flow.blocks[number]
            end, live = block.end, self._live_out(number)
            for index in within:
                live = self._before(index, end, live)
                self._kept[index] = live
                end = index

    def _settle(self) -> None:
        """Propagate to a fixed point. Sets only grow, so this ends."""
        blocks = self._flow.blocks
        passing = [self._passing(block) for block in blocks]
        # Against the order of the text: one round, and one more for each loop.
        is_due = bytearray(b"\1" * len(blocks))
        while any(is_due):
            for block in reversed(blocks):
                if not is_due[block.index]:
                    continue
                is_due[block.index] = 0
                defined, used = passing[block.index]
                live = self._live_out(block.index) & ~defined | used
                if live != self._live_in[block.index]:
                    self._live_in[block.index] = live
                    for predecessor in block.predecessors:
                        is_due[predecessor] = 1

    def _passing(self, block: Block) -> tuple[int, int]:
        """The registers that a block defines, and those that it uses from before it."""
        defined = used = 0
        for index in range(block.end - 1, block.start - 1, -1):
            defined |= self._defs[index]
            used = used & ~self._defs[index] | self._uses[index]
        return defined, used

    def _live_out(self, block: int) -> int:
        live = 0
        for successor in self._flow.blocks[block].successors:
            live |= self._live_in[successor]
        return live

    def _before(self, start: int, end: int, live: int) -> int:
        for index in range(end - 1, start - 1, -1):
            live = live & ~self._defs[index] | self._uses[index]
        return live

    def _named(self, bits: int) -> frozenset[Register]:
        text = bin(bits)[:1:-1]
        found, at = [], text.find("1")
        while at >= 0:
            found.append(self._registers[at])
            at = text.find("1", at + 1)
        return frozenset(found)


def liveness(flow: ControlFlow) -> Liveness:
    """Where each register of the function is live."""
    return Liveness(flow)


def _bits(bit: dict[str, int], registers: Iterable[Register]) -> int:
    found = 0
    for register in registers:
        found |= bit[register.name]
    return found
