"""Cellar, jit. The layout of registers and masks that the pieces of a function share.

Stack slots are `%"=name"` of a register, and `%wait.k` and `%held.k` of lanes. A slot stays in a
piece if that piece alone names it, and if it is not needed where another piece begins. All other
slots lie in the function's context: masks first, then registers that begin as zero, then the rest.
A kernel's context is in the warp's frame, so that it survives a suspension of the warp.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.register_allocas import register_slots

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cudasync.softgpu.jit.analysis.reconvergence_order import Flow
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

NAMES = re.compile(r'%"=[^"]*"|%(?:wait|held)\.\d+')
_ELEMENTS = re.compile(r"<(\d+) x (\w+)>")
_BYTES = {"i1": 1, "i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}
_MASK_BYTES = 4
_ALIGNMENT = 64


class Context:
    """The layout of a function's context; made once all pieces are written."""

    def __init__(
        self,
        lowering: Lowering,
        flow: Flow,
        named: Sequence[set[str]],
        returning: Iterable[set[str]],
        entries: Iterable[int],
        vector_masks: frozenset[str],
    ) -> None:
        """`named` has the slots that each piece names. `returning` has the slots of pieces that
        jump back to an earlier piece. `entries` are the nodes at which a piece may begin."""
        self._masks = f"i{lowering.builder.lanes}"
        self._flags = lowering.builder.vector_type("i1")
        self._vector_masks = vector_masks
        # For each slot, its type and the zero of that type.
        self._types = {
            place: (type_, zero)
            for name in lowering.function.registers
            for place, type_, zero in register_slots(lowering, name)
        }
        seen: set[str] = set()
        shared: set[str] = set()
        for names in named:
            shared |= seen & names
            seen |= names
        # After a backward jump, lanes may wait at any node until control reaches it again.
        shared |= _masks_of_all(returning)
        waits = _masks(shared)
        nodes = {int(place.rpartition(".")[2]) for place in waits if place.startswith("%wait.")}
        needed = frozenset[str]().union(*(flow.live_in(node) for node in nodes.union(entries)))
        zeroed = self._slots_of(lowering, flow.live_in(0))
        registers = (shared - waits) | (self._slots_of(lowering, needed) & seen)
        self.places: dict[str, int] = {}
        end = 0
        for place in sorted(waits):
            self.places[place] = end
            end += _MASK_BYTES
        self.mask_bytes = end
        for place in [*sorted(registers & zeroed), *sorted(registers - zeroed)]:
            size = bytes_of(self.type_of(place))
            step = min(_ALIGNMENT, size)
            end = -(-end // step) * step
            self.places[place] = end
            end += size
            if place in zeroed:
                self.zeroed_bytes = end
        if not registers & zeroed:
            self.zeroed_bytes = self.mask_bytes
        self.size = -(-end // _ALIGNMENT) * _ALIGNMENT

    @staticmethod
    def _slots_of(lowering: Lowering, names: Iterable[str]) -> set[str]:
        return {place for name in names for place, _, _ in register_slots(lowering, name)}

    def type_of(self, place: str) -> str:
        """The type of a slot's value."""
        if place in self._types:
            return self._types[place][0]
        return self._flags if place in self._vector_masks else self._masks

    def nothing_in(self, place: str) -> str:
        """The initial value of a slot."""
        if place in self._types:
            return self._types[place][1]
        return "zeroinitializer" if place in self._vector_masks else "0"

    def where(self, place: str) -> str:
        """The address of a slot in the context."""
        return f"getelementptr i8, ptr %context, i64 {self.places[place]}"


def _masks_of_all(named: Iterable[set[str]]) -> set[str]:
    return set[str]().union(*map(_masks, named))


def _masks(names: Iterable[str]) -> set[str]:
    return {each for each in names if not each.startswith('%"')}


def bytes_of(type_: str) -> int:
    """The size of a value in memory, in bytes."""
    found = _ELEMENTS.fullmatch(type_)
    if found is None:
        return _BYTES[type_]
    count, element = int(found[1]), found[2]
    return max(1, count // 8) if element == "i1" else count * _BYTES[element]


def named_in(lines: Iterable[str]) -> set[str]:
    """The slots that a text names."""
    return set(NAMES.findall("\n".join(lines)))
