"""Cellar. A kernel as the LLVM IR of one function: run a thread until it stops.

    i32 thread(ptr frame)      the number of the stop reached, DONE or FAULTED

Every PTX instruction begins a basic block named I<index>, so that a branch, a guard and the
switch at the entry can reach any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.emitter import Emitter
from cudasync.softgpu.oracle.instructions import lower
from cudasync.softgpu.oracle.state import DONE, ThreadState

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Instruction
    from cudasync.softgpu.oracle.control import Stop
    from cudasync.softgpu.oracle.places import Places

# Instructions whose code ends in a jump or a return of its own.
_LEAVING = frozenset({"bra", "brx", "ret", "exit", "trap"})


@dataclass(frozen=True, slots=True)
class ThreadCode:
    """The text of a kernel's thread function, and what the scheduler must know of it."""

    text: str
    stops: tuple[Stop, ...]
    frame_bytes: int


def lower_kernel(kernel: Function, places: Places, file: str, *, memcheck: bool) -> ThreadCode:
    """Lower every instruction; PtxError for the first that is not implemented."""
    e = Emitter(kernel, places, file, memcheck=memcheck)
    for index, instruction in enumerate(kernel.body):
        e.index, e.instruction = index, instruction
        e.label(f"I{index}")
        _guard(e, instruction, index)
        lower(e, instruction)
        if instruction.opcode not in _LEAVING:
            e.line(f"br label %I{index + 1}")
    e.label(f"I{len(kernel.body)}")
    e.line(f"ret i32 {DONE}")
    body, e.lines = e.lines, []
    _entry(e)
    text = "\n".join(["define i32 @thread(ptr %frame) {", *e.lines, *body, "}"])
    return ThreadCode("\n".join([text, *e.helpers.values()]), tuple(e.stops), e.frame_bytes)


def _guard(e: Emitter, instruction: Instruction, index: int) -> None:
    guard = instruction.guard
    if guard is None:
        return
    condition = e.read(guard.register, ScalarType.PRED)
    does, skips = f"do{index}", f"I{index + 1}"
    if guard.negated:
        e.line(f"br i1 {condition}, label %{skips}, label %{does}")
    else:
        e.line(f"br i1 {condition}, label %{does}, label %{skips}")
    e.label(does)


def _entry(e: Emitter) -> None:
    """Go on where the thread stopped."""
    e.label("entry")
    position = e.field("%frame", ThreadState.position.offset, "i32")
    cases = " ".join(
        f"i32 {number}, label %{stop.resume}" for number, stop in enumerate(e.stops, start=1)
    )
    e.line(f"switch i32 {position}, label %I0 [{cases}]")
