"""Cellar. A kernel's fault as a result code, and the sentence that reports it.

The sentence names the kernel, the PTX line, the block and threads, the access, and the nearest or
freed allocation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import (
    ASSERT,
    ILLEGAL_ADDRESS,
    LAUNCH_FAILED,
    LAUNCH_TIMEOUT,
    MISALIGNED_ADDRESS,
    DriverFailure,
)
from cudasync.softgpu.core.launch.kernel_stop import AFTER_INTERRUPT
from cudasync.softgpu.core.memory.allocation_table import distance
from cudasync.softgpu.core.memory.arena import GUARD_BYTES
from cudasync.softgpu.core.modules.source_lines import source_of
from cudasync.softgpu.interface.launch import Fault, FaultKind

if TYPE_CHECKING:
    from cudasync.ptx.ir import Module
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.memory.memory_manager import MemoryManager

_CODES: Final = {
    FaultKind.ILLEGAL_ADDRESS: (ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    FaultKind.MISALIGNED: (MISALIGNED_ADDRESS, "misaligned address"),
    FaultKind.TIMEOUT: (LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    FaultKind.STOPPED: (LAUNCH_TIMEOUT, "the launch was terminated"),
    FaultKind.TRAP: (LAUNCH_FAILED, "a kernel executed trap"),
    FaultKind.ASSERT: (ASSERT, "a device-side assert was triggered"),
    FaultKind.BARRIER: (LAUNCH_FAILED, "a barrier can never complete"),
}
_NAMED_THREADS: Final = 4


def failure_of(
    fault: Fault,
    memory: MemoryManager,
    module: Module,
    stop_reason: str = "",
    node: int | None = None,
) -> DriverFailure:
    """The fault as the failure that becomes sticky on its context.

    `stop_reason` says why the kernel was stopped; it is empty if the kernel stopped itself after
    an interrupt. `node` is the number of the graph node, if a graph launched the kernel.
    """
    code, words = _CODES[fault.kind]
    text = f"{words}: kernel {fault.kernel}, PTX line {fault.line}"
    source = source_of(module, fault.line)
    if source:
        text += f" ({source})"
    if node is not None:
        text += f", node {node} of its graph"
    text += f", block {fault.block}"
    if fault.threads:
        named = ", ".join(str(thread) for thread in fault.threads[:_NAMED_THREADS])
        more = len(fault.threads) - _NAMED_THREADS
        text += f", thread{'s' * (len(fault.threads) > 1)} {named}"
        text += f" and {more} more" if more > 0 else ""
    if fault.kind is FaultKind.TIMEOUT:
        text += "; set CUDASYNC_SOFTGPU_BUDGET to allow a launch more instructions"
    elif fault.kind is FaultKind.STOPPED:
        text += f"; {stop_reason or AFTER_INTERRUPT}"
    if fault.size_bytes:
        text += f": {_access(fault, memory)}"
    return DriverFailure(code, text)


def _access(fault: Fault, memory: MemoryManager) -> str:
    text = f"{'write' if fault.is_write else 'read'} of {fault.size_bytes} bytes at"
    if fault.space is not None:
        text = f".{fault.space.value} {text}"
    if fault.window is not None:
        start, size_bytes = fault.window
        return f"{text} offset {fault.address - start} in {size_bytes} bytes"
    return f"{text} {fault.address:#x}, {_whereabouts(fault.address, memory)}"


def _whereabouts(address: int, memory: MemoryManager) -> str:
    if memory.virtual.holds(address):
        return memory.virtual.describe(address)
    table = memory.table_of(address)
    inside = table.find(address)
    if inside is not None:
        state = "in" if inside.is_live else "in not yet allocated"
        return f"{state} {inside.describe()}"
    nearest = table.nearest(address)
    freed = table.find_freed(address)
    # Live allocations lie further apart than this. So an address this near to a live one was not
    # in a freed one, unless the freed memory was cut up since.
    is_near = nearest is not None and distance(nearest, address) <= GUARD_BYTES
    if freed is not None and not is_near:
        return f"in freed {freed.describe()}"
    if nearest is None:
        return "where nothing is allocated"
    return f"{_offset(address, nearest)} {nearest.describe()}"


def _offset(address: int, allocation: Allocation) -> str:
    gap = distance(allocation, address)
    if address < allocation.start:
        return f"{gap} bytes before"
    return f"{gap - 1} bytes past the end of" if gap > 1 else "just past the end of"
