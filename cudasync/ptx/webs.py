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

    __slots__ = ("_bits", "_first", "_joined", "_masks", "_parents", "at_entry", "defined", "used")

    at_entry: dict[str, int]
    defined: dict[tuple[int, str], int]
    used: dict[tuple[int, str], int]

    def __init__(self, function: Function, *, sees_entry: bool = False) -> None:
        self.at_entry = {}
        self.defined = {}
        self.used = {}
        # The bit of each definition among its register's; all bits of each register.
        self._bits: dict[tuple[int, str], int] = {}
        self._masks: dict[str, int] = {}
        # The number of each register's first definition: how far its bits are shifted in a set of
        # all definitions. Such sets are as long as the function, so instructions use sets of one
        # register, and blocks alone use sets of all.
        self._first: dict[str, int] = {}
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
        places: defaultdict[str, dict[int, None]] = defaultdict(dict)
        for index, instruction in enumerate(function.body):
            for register in defs(instruction):
                places[register.name][index] = None
        for name, indices in places.items():
            if len(indices) > 1 and name not in fixed:
                self._first[name] = len(self._bits)
                every = [*entry, *indices]
                for number, index in enumerate(every):
                    self._bits[index, name] = 1 << number
                self._masks[name] = (1 << len(every)) - 1

    def _join(self, flow: ControlFlow) -> None:
        entry = [name for index, name in self._bits if index == _ENTRY]
        reaching = self._reaching(flow, sum(1 << self._first[name] for name in entry))
        for block in flow.blocks:
            self._note(flow, block, reaching[block.index])
        self.at_entry = {name: self._root(self._first[name]) for name in entry}
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
        left: dict[str, int] = {}
        overwritten: set[str] = set()
        for index in range(block.start, block.end):
            instruction = flow.function.body[index]
            for register in defs(instruction):
                name = register.name
                bit = self._bits.get((index, name))
                if bit is None:
                    continue
                if instruction.guard is None:
                    overwritten.add(name)
                    left[name] = bit
                else:
                    left[name] = left.get(name, 0) | bit
        return (
            sum(self._masks[name] << self._first[name] for name in overwritten),
            sum(bits << self._first[name] for name, bits in left.items()),
        )

    def _note(self, flow: ControlFlow, block: Block, reaching: int) -> None:
        """Note the webs of the block's instructions, given the definitions at its beginning."""
        # The definitions of each register that reach the current instruction.
        live = _OfRegisters(self._first, self._masks, reaching)
        for index in range(block.start, block.end):
            instruction = flow.function.body[index]
            for register in uses(instruction):
                name = register.name
                met = live[name] if name in self._masks else 0
                if met:
                    self.used[index, name] = self._union(name, met)
            for register in defs(instruction):
                name = register.name
                bit = self._bits.get((index, name))
                if bit is None:
                    continue
                self.defined[index, name] = self._first[name] + bit.bit_length() - 1
                if instruction.guard is None:
                    live[name] = bit
                else:
                    live[name] |= bit
                    self._union(name, live[name])

    def _union(self, name: str, bits: int) -> int:
        """Join definitions of a register into one web, and return its number.

        Definitions that meet at one use mostly meet at the next, with a few more: one of the joined
        ones is enough.
        """
        before_first = self._first[name] - 1
        first = self._root(before_first + bits.bit_length())
        joined = self._joined.get(name, 0)
        common = bits & joined
        self._joined[name] = joined | bits if common else bits
        bits = bits & ~joined | common & -common
        while bits:
            lowest = bits & -bits
            self._parents[self._root(before_first + lowest.bit_length())] = first
            bits ^= lowest
        return first

    def _root(self, web: int) -> int:
        while self._parents[web] != web:
            self._parents[web] = self._parents[self._parents[web]]
            web = self._parents[web]
        return web


class _OfRegisters(dict[str, int]):
    """The definitions of each register in a set of all definitions, taken when first asked for."""

    def __init__(self, first: dict[str, int], masks: dict[str, int], every: int) -> None:
        self._first = first
        self._masks = masks
        self._every = every

    def __missing__(self, name: str) -> int:
        found = self[name] = self._every >> self._first[name] & self._masks[name]
        return found
