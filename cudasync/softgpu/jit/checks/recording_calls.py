"""Cellar, jit. Calls that record an access, if a module is compiled for recording.

Only global memory is recorded here; `initialisation_calls` handles windows of the block.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cudasync.softgpu.interface.access_recording import NOTE, NOTE_NAME, Touch, noted
from cudasync.softgpu.jit.checks.global_recording import SEARCH, SEARCH_NAME, marking
from cudasync.softgpu.jit.checks.initialisation_calls import note_window
from cudasync.softgpu.jit.checks.lane_calls import mark_lanes
from cudasync.softgpu.jit.checks.race_calls import note_access
from cudasync.softgpu.jit.kernel_abi.job_record import Where
from cudasync.softgpu.jit.vector_ir.values import integer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.addressing.address_spaces import Place
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering
    from cudasync.softgpu.jit.vector_ir.values import Value


def note(
    lowering: Lowering,
    instruction: ir.Instruction,
    where: Place,
    size: int,
    kind: Touch,
    values: Sequence[Value] = (),
) -> None:
    """Record that each active lane accesses `size` bytes, if launches are recorded.

    `values` are the stored values, if they are known.
    """
    if instruction.used_bytes is None:
        _note(lowering, instruction, where, size, kind, values)
        return
    # The compiler made a load wider than the program's own accesses.
    for start, length in runs(instruction.used_bytes, size):
        used = where
        if start:
            address = lowering.builder.add(where.address, integer("i64", start))
            used = replace(where, address=address)
        _note(lowering, instruction, used, length, kind)


def runs(mask: int, size: int) -> Iterator[tuple[int, int]]:
    """The runs of ones in the lowest `size` bits: the first bit and the number of each."""
    start = 0
    for at in range(1, size + 1):
        if at == size or (mask >> at ^ mask >> start) & 1:
            if mask >> start & 1:
                yield start, at - start
            start = at


def _note(
    lowering: Lowering,
    instruction: ir.Instruction,
    where: Place,
    size: int,
    kind: Touch,
    values: Sequence[Value] = (),
) -> None:
    note_access(lowering, instruction, where, size, kind, values)
    note_window(lowering, instruction, where, size, kind)
    settings = lowering.settings
    if not settings.record or where.where is Where.WINDOW:
        return
    if kind is Touch.READ and not settings.reads:
        return
    builder = lowering.builder
    if builder.is_silent:
        return
    builder.functions[f"@{NOTE_NAME}"] = NOTE
    builder.functions[SEARCH_NAME] = SEARCH
    bits = noted(kind, instruction.opcode, instruction.modifiers)
    unit = lowering.program.unit if settings.has_units else 1
    each = marking(size, bits, builder.lanes, unit)
    mark_lanes(lowering, each, "ptr %job", where.address, instruction.span.line)
