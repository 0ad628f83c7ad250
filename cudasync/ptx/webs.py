"""Floor 0. Webs: separates the values that one register holds in different places.

Hand-written PTX and loops define one register in several places. Definitions that reach a common
use belong to one web. Two webs of a register are independent: an analysis that ignores the order
of instructions may treat them as two registers. The algorithm is reaching definitions, then
union-find over the definitions that meet at a use.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from cudasync.ptx.cfg import ControlFlow
from cudasync.ptx.liveness import defs, uses

if TYPE_CHECKING:
    from cudasync.ptx.cfg import Block
    from cudasync.ptx.ir import Function


# The index of the definition that a register has before the first instruction.
_ENTRY = -1


class Webs:
    """The webs of a function's registers.

    `defined` and `used` give the number of the web for an instruction's index and a register's
    name. Registers with one definition, and parameters, have one web and are in neither.

    `sees_entry` is for a body that is complete: registers begin with a value, which is a definition
    like any other (`at_entry` gives its web), and instructions pass parameters and results.
    Without `sees_entry`, no code is assumed to use a register before it is defined.
    """

    __slots__ = ("_bits", "_joined", "_masks", "_parents", "at_entry", "defined", "used")

    at_entry: dict[str, int]
    defined: dict[tuple[int, str], int]
    used: dict[tuple[int, str], int]

    def __init__(self, function: Function, *, sees_entry: bool = False) -> None:
        self.at_entry = {}
        self.defined = {}
        self.used = {}
        # The bit of each definition; the bits of the definitions of each register.
        self._bits: dict[tuple[int, str], int] = {}
        self._masks: dict[str, int] = {}
        # For each register, definitions that are already in one web.
        self._joined: dict[str, int] = {}
        self._number(function, sees_entry=sees_entry)
        self._parents = list(range(len(self._bits)))
        if self._bits:
            self._join(ControlFlow(function))

    def _number(self, function: Function, *, sees_entry: bool) -> None:
        outer = () if sees_entry else (*function.parameters, *function.results)
        fixed = {each.name for each in outer}
        entry = [_ENTRY] if sees_entry else []
        places: defaultdict[str, list[int]] = defaultdict(list)
        for index, instruction in enumerate(function.body):
            for register in defs(instruction):
                places[register.name].append(index)
        for name, indices in places.items():
            if len(indices) > 1 and name not in fixed:
                self._masks[name] = 0
                for index in entry + indices:
                    bit = 1 << len(self._bits)
                    self._bits[index, name] = bit
                    self._masks[name] |= bit

    def _join(self, flow: ControlFlow) -> None:
        entry = {name: bit for (index, name), bit in self._bits.items() if index == _ENTRY}
        reaching = self._reaching(flow, sum(entry.values()))
        for block in flow.blocks:
            self._note(flow, block, reaching[block.index])
        self.at_entry = {name: self._root(bit.bit_length() - 1) for name, bit in entry.items()}
        self.used = {place: self._root(web) for place, web in self.used.items()}
        self.defined = {place: self._root(web) for place, web in self.defined.items()}

    def _reaching(self, flow: ControlFlow, at_entry: int) -> list[int]:
        """The definitions that reach the beginning of each block."""
        passing = [self._passing(flow, block) for block in flow.blocks]
        before = [0] * (len(flow.blocks) + 1)
        before[0] = at_entry
        # Blocks mostly run in the order of the text: one round, and one more for each loop.
        is_due = bytearray(b"\1" * len(flow.blocks))
        while any(is_due):
            for block in flow.blocks:
                if not is_due[block.index]:
                    continue
                is_due[block.index] = 0
                overwritten, left = passing[block.index]
                after = before[block.index] & ~overwritten | left
                for successor in block.successors:
                    if after & ~before[successor]:
                        before[successor] |= after
                        if successor < flow.exit:
                            is_due[successor] = 1
        return before

    def _passing(self, flow: ControlFlow, block: Block) -> tuple[int, int]:
        """The definitions that a block overwrites, and those that it leaves."""
        overwritten = left = 0
        for index in range(block.start, block.end):
            instruction = flow.function.body[index]
            for register in defs(instruction):
                bit = self._bits.get((index, register.name))
                if bit is None:
                    continue
                if instruction.guard is None:
                    mask = self._masks[register.name]
                    overwritten |= mask
                    left &= ~mask
                left |= bit
        return overwritten, left

    def _note(self, flow: ControlFlow, block: Block, live: int) -> None:
        """Note the webs of the block's instructions, given the definitions at its beginning."""
        for index in range(block.start, block.end):
            instruction = flow.function.body[index]
            for register in uses(instruction):
                met = live & self._masks.get(register.name, 0)
                if met:
                    self.used[index, register.name] = self._union(register.name, met)
            for register in defs(instruction):
                bit = self._bits.get((index, register.name))
                if bit is None:
                    continue
                self.defined[index, register.name] = bit.bit_length() - 1
                mask = self._masks[register.name]
                if instruction.guard is None:
                    live &= ~mask
                else:
                    self._union(register.name, bit | live & mask)
                live |= bit

    def _union(self, name: str, bits: int) -> int:
        """Join definitions of a register into one web, and return its number.

        Definitions that meet at one use mostly meet at the next, with a few more: one of the joined
        ones is enough.
        """
        first = self._root(bits.bit_length() - 1)
        joined = self._joined.get(name, 0)
        common = bits & joined
        self._joined[name] = joined | bits if common else bits
        bits = bits & ~joined | common & -common
        while bits:
            lowest = bits & -bits
            self._parents[self._root(lowest.bit_length() - 1)] = first
            bits ^= lowest
        return first

    def _root(self, web: int) -> int:
        while self._parents[web] != web:
            self._parents[web] = self._parents[self._parents[web]]
            web = self._parents[web]
        return web
