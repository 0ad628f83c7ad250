"""Cellar. The shared memory that the system has of each block, and where a kernel finds it.

PTX ISA, "%reserved_smem_offset_begin" and its neighbours; CUDA's cooperative groups keep what the
warps of a tile tell each other at %reserved_smem_offset_1, and count on 288 bytes there. The ISA
leaves open where the region lies: here before all that a kernel declares or a launch adds. A kernel
that asks for none of it has none, and its variables begin at 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.ptx.ir import Special

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cudasync.ptx.ir import Function, Variable

RESERVED_BYTES: Final = 1024
"""CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK."""

REGISTERS: Final[Mapping[str, int]] = {
    "%reserved_smem_offset_begin": 0,
    "%reserved_smem_offset_end": RESERVED_BYTES,
    "%reserved_smem_offset_cap": RESERVED_BYTES,
    "%reserved_smem_offset_0": 0,
    "%reserved_smem_offset_1": RESERVED_BYTES // 2,
}
"""What the special registers hold, in bytes from the start of the shared window."""


def bytes_before(functions: Iterable[Function], variables: Iterable[Variable]) -> int:
    """How far these shared variables lie behind the region; 0 where no function asks for it.

    As much as their strictest alignment wants, so that each lies as it would without.
    """
    if not any(_asks(function) for function in functions):
        return 0
    strictest = max((each.align for each in variables), default=1)
    return -(-RESERVED_BYTES // strictest) * strictest


def _asks(function: Function) -> bool:
    return any(
        isinstance(operand, Special) and operand.name in REGISTERS
        for each in function.body
        for operand in each.operands
    )
