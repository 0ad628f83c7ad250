"""Cellar. A kernel as the LLVM IR of one function: run a thread until it stops.

    i32 thread(ptr frame)      the number of the stop reached, DONE or FAULTED

Every PTX instruction begins a basic block of its own, so that a branch, a guard and the switch at
the entry can reach each instruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.errors import PtxError
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.emission.emitter import Emitter
from cudasync.softgpu.oracle.emission.state_records import DONE, ThreadState
from cudasync.softgpu.oracle.instructions.calls import give_back
from cudasync.softgpu.oracle.opcode_table import lower
from cudasync.softgpu.semantics.lowering_errors import refusal

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Instruction
    from cudasync.softgpu.oracle.emission.memory_layout import Places
    from cudasync.softgpu.oracle.emission.suspension_points import Stop

# Instructions whose code ends in a jump or a return of its own.
_LEAVING = frozenset({"bra", "brx", "ret", "exit", "trap"})


# Stack for the functions that a kernel calls.
_STACK_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class ThreadCode:
    """The text of a kernel's thread function, and the data that the scheduler needs.

    `stack_bytes` is the size of the stack after a thread's record.
    """

    text: str
    stops: tuple[Stop, ...]
    stack_bytes: int


def lower_kernel(
    kernel: Function, places: Places, file: str, *, memcheck: bool, record: bool
) -> ThreadCode:
    """Lower every instruction; PtxError for the first that is not implemented."""
    e = Emitter(kernel, places, file, memcheck=memcheck, record=record)
    # Lowering a function may find more functions that it calls.
    for function in e.called:
        _lower_body(e, function)
    body, e.lines = e.lines, []
    _entry(e)
    _dispatch_returns(e)
    text = "\n".join(["define i32 @thread(ptr %frame) {", *e.lines, *body, "}"])
    stack_bytes = e.activation_of(kernel).size_bytes + (_STACK_BYTES if e.returns else 0)
    return ThreadCode("\n".join([text, *e.helpers.values()]), tuple(e.stops), stack_bytes)


def _lower_body(e: Emitter, function: Function) -> None:
    e.enter(function)
    for index, instruction in enumerate(function.body):
        e.index, e.instruction = index, instruction
        e.label(e.label_of(index))
        try:
            _guard(e, instruction, index)
            lower(e, instruction)
        except PtxError:
            raise
        except Exception as error:
            raise refusal(error, instruction, e.file) from error
        if instruction.opcode not in _LEAVING:
            e.line(f"br label %{e.label_of(index + 1)}")
    e.label(e.label_of(len(function.body)))
    if function.is_kernel:
        e.line(f"ret i32 {DONE}")
    else:
        give_back(e)


def _guard(e: Emitter, instruction: Instruction, index: int) -> None:
    guard = instruction.guard
    if guard is None:
        return
    condition = e.read(guard.register, ScalarType.PRED)
    does, skips = e.fresh("do"), e.label_of(index + 1)
    if guard.negated:
        e.line(f"br i1 {condition}, label %{skips}, label %{does}")
    else:
        e.line(f"br i1 {condition}, label %{does}, label %{skips}")
    e.label(does)


def _entry(e: Emitter) -> None:
    """Resume the thread at its stop."""
    e.label("entry")
    e.line("%site = alloca i32")
    position = e.field("%frame", ThreadState.position.offset, "i32")
    cases = " ".join(
        f"i32 {number}, label %{stop.resume}" for number, stop in enumerate(e.stops, start=1)
    )
    e.line(f"switch i32 {position}, label %{e.label_of(0, e.called[0])} [{cases}]")


def _dispatch_returns(e: Emitter) -> None:
    """The common target of every ret of a device function: it jumps to the code after the call."""
    if not e.returns:
        return
    e.label("return")
    site = e.value("load i32, ptr %site")
    cases = " ".join(f"i32 {number}, label %{behind}" for number, behind in enumerate(e.returns))
    e.line(f"switch i32 {site}, label %astray [{cases}]")
    e.label("astray")
    e.line("unreachable")
