"""Floor 2. Attribution: finds the op that may have caused a device fault.

The driver reports a fault at some later call, without the op. Finished work did not cause it. On
each stream the first unfinished op is the first candidate. If the report names a kernel, as on the
software GPU, that op is the culprit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.batch.failed_step import is_named, name_to_blame
from cudasync.engine.op import OpKind
from cudasync.errors import ClosedError, CudaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.engine.op_classes import DeviceOp

# The driver checks these when they are called; they do not fault later.
HARMLESS = (OpKind.ALLOCATE, OpKind.FREE)


def is_harmless(op: DeviceOp, error: BaseException) -> bool:
    """True if `op` got `error` because its memory is gone, or will go with the reset that its
    device needs: nobody must be told."""
    if isinstance(error, ClosedError):
        return op.kind in HARMLESS
    return op.kind is OpKind.FREE and isinstance(error, CudaError) and error.sticky


def suspect(
    flights: Sequence[Sequence[DeviceOp]], reporter: DeviceOp, error: CudaError
) -> tuple[DeviceOp, list[str]]:
    """The op to name, and the names of all suspects if the fault cannot be attributed to one op.

    `flights` are the ops in flight on each stream in order; at `reporter` the driver reported the
    fault.
    """
    named = [
        op
        for op in sorted((op for flight in flights for op in flight), key=_number)
        if is_named(op, error)
    ]
    for op in named:
        # A report of checked mode names the call site of the launch.
        if f"called at {op.push_site}" in error.hint:
            return op, []
    if named:
        return named[0], []
    firsts = []
    for flight in flights:
        first = next((op for op in flight if op.kind not in HARMLESS), None)
        if first is not None:
            firsts.append(first)
    if not firsts:
        return reporter, []
    firsts.sort(key=_number)
    return firsts[0], [name_to_blame(op, error) for op in firsts] if len(firsts) > 1 else []


def _number(op: DeviceOp) -> int:
    return op.number
