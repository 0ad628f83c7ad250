"""Cellar, jit. The unit of a kernel's accesses to memory outside the block.

Accesses are aligned to their sizes. If none is smaller than a unit, each touches whole units, and a
recording needs one mark for a unit (`interface/access_recording.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.ptx.ir import Address, Integer
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Instruction

_LARGEST: Final = 16
_PLAIN: Final = frozenset({"ld", "ldu", "st", "atom", "red"})
# A kernel's parameters are constant memory, but arguments are not recorded.
_OUTSIDE: Final = (StateSpace.GLOBAL, StateSpace.GENERIC, StateSpace.CONST)


def access_unit(instructions: Iterable[Instruction]) -> int:
    """A power of two that divides address and size of every access that may be recorded."""
    return min((_unit(each) for each in instructions), default=_LARGEST)


def _unit(each: Instruction) -> int:
    if not any(isinstance(operand, Address) for operand in each.operands):
        return _LARGEST
    if each.opcode == "cp":
        # With a fourth operand, it may copy fewer bytes.
        length = each.operands[2] if len(each.operands) == 3 else None
        size = length.value if isinstance(length, Integer) else 1
    elif each.space not in _OUTSIDE:
        return _LARGEST
    elif each.opcode in _PLAIN and each.types:
        size = each.type.size * each.vector_size
        if each.used_bytes is not None:
            size = _used_unit(each.used_bytes, size)
    else:
        # Rows of a matrix may be closer to each other than they are long.
        size = 1
    return min(size & -size, _LARGEST) or 1


def _used_unit(used: int, size: int) -> int:
    """What divides the beginning and the end of each run of used bytes, whose bits are set."""
    edges = used ^ used << 1
    return min((at & -at for at in range(1, size + 1) if edges >> at & 1), default=size)
