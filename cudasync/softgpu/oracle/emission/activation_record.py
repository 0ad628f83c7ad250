"""Cellar. The memory of one call of a function: its links, its registers, its .param variables.

Activation records lie one after another on the thread's stack, so a callee finds its caller's
record, and recursion needs nothing special. The kernel's record is the first; its parameters lie
elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.layout import layout
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.oracle.emission.local_frames import addressed

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function

# The number of the call site that made the record; the caller's record; where the call's local
# memory begins in its thread's (see local_frames.py).
SITE_OFFSET = 0
CALLER_OFFSET = 8
LOCAL_OFFSET = 16
_REGISTERS_OFFSET = 24
_REGISTER_BYTES = 8


class Activation:
    """Offsets from the start of an activation record, and its size in bytes."""

    registers: dict[str, int]
    # .param variables of the body. Also those of a device function's head, unless their address is
    # taken.
    memory: dict[str, int]
    size_bytes: int

    def __init__(self, function: Function) -> None:
        self.registers = {
            name: _REGISTERS_OFFSET + _REGISTER_BYTES * index
            for index, name in enumerate(function.registers)
        }
        start = _REGISTERS_OFFSET + _REGISTER_BYTES * len(self.registers)
        start = -(-start // 16) * 16
        variables = [v for v in function.variables if v.space is StateSpace.PARAM]
        if not function.is_kernel:
            in_frame = {each.name for each in addressed(function)}
            head = (*function.parameters, *function.results)
            variables += [each for each in head if each.name not in in_frame]
        offsets, size = layout(variables)
        self.memory = {name: start + offset for name, offset in offsets.items()}
        self.size_bytes = -(-(start + size) // 16) * 16
