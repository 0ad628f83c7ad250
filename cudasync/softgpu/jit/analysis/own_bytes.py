"""Cellar, jit. Finds accesses to shared memory by which each thread reaches bytes of its own.

It holds for blocks of one dimension. The address must be a sum in which the thread's index has one
factor, at least as large as the access, and everything else is the same for all threads of a block.
A loop's counter is not the same for all, because threads may be in different trips.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.ptx.ir import Address
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.ptx.ir import Instruction
    from cudasync.ptx.linear import Form, Forms

_PLACES: Final = {"ld": 1, "st": 0}
_THREAD: Final = ("%tid.x",)
# Indices that are 0 in such blocks.
_ZERO: Final = frozenset({"%tid.y", "%tid.z"})
_SAME: Final = ("%ntid.", "%ctaid.", "%nctaid.")
# With more, an address of 32 bits could wrap within a block.
_MOST_APART: Final = 1 << 20


def are_own(instructions: Sequence[Instruction], forms: Forms) -> bool:
    """Whether no two threads of a block reach one byte of shared memory by these instructions."""
    found: list[Form] = []
    size = 0
    for each in instructions:
        if each.opcode == "call":
            return False
        if not any(isinstance(operand, Address) for operand in each.operands):
            continue
        place = _PLACES.get(each.opcode)
        if place is None or each.space is not StateSpace.SHARED:
            return False
        form = forms.address(each.operands[place])
        if form is None:
            return False
        found.append({term: n for term, n in form.items() if _ZERO.isdisjoint(term)})
        size = max(size, each.type.size * each.vector_size)
    return bool(found) and all(each == found[0] for each in found) and _is_own(found[0], size)


def _is_own(form: Form, size: int) -> bool:
    others = (symbol for term in form if term != _THREAD for symbol in term)
    is_same_for_all = all(symbol.startswith(_SAME) or symbol[:1] not in "%@=" for symbol in others)
    return is_same_for_all and size <= abs(form.get(_THREAD, 0)) <= _MOST_APART
