"""Cellar. Reserved shared memory: the system's part of each block, and its place.

Source: PTX ISA, "%reserved_smem_offset_begin" and its neighbours. CUDA's cooperative groups keep
messages between the warps of a tile at %reserved_smem_offset_1, and need 288 bytes there. The ISA
does not define the region's place: here it lies before the kernel's and the launch's shared memory.
A kernel that does not use the region has none, and its variables begin at 0.
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
"""The values of the special registers, in bytes from the start of the shared window."""


def bytes_before(functions: Iterable[Function], variables: Iterable[Variable]) -> int:
    """The bytes before these shared variables; 0 if no function uses the region.

    A multiple of their strictest alignment, so that the variables' layout does not change.
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
