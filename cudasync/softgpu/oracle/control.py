"""Cellar. Branches, ends, and the stops at which a thread hands over to the scheduler.

A stop has a number, which the thread function returns and keeps in its record; called again, it
goes on behind the stop. At barriers and warp-wide instructions operands go into the mailbox of
the thread, and results come back in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer, Label, Pair, Sink, Vector
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle import calls
from cudasync.softgpu.oracle.memory import TIMEOUT, TRAP, set_fault
from cudasync.softgpu.oracle.state import DONE, BlockState, ThreadState

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.oracle.emitter import Emitter

T = ScalarType
# What a turn of a polite loop costs, in back edges.
YIELD_COST = 2**14


@unique
class StopKind(Enum):
    BARRIER = "barrier"
    WARP = "warp"
    YIELD = "yield"


@dataclass(frozen=True, slots=True)
class Stop:
    """One place where threads stop; `resume` is the label at which they go on."""

    kind: StopKind
    instruction: Instruction
    resume: str


def _stop(e: Emitter, kind: StopKind, i: Instruction, resume: str) -> None:
    e.stops.append(Stop(kind, i, resume))
    number = len(e.stops)
    e.line(f"store i32 {number}, ptr {e.at('%frame', ThreadState.position.offset)}")
    e.line(f"ret i32 {number}")


def branch(e: Emitter, i: Instruction) -> None:
    target = i.operands[0]
    assert isinstance(target, Label)
    _jump(e, i, target.name)


def indexed_branch(e: Emitter, i: Instruction) -> None:
    """brx.idx; an index beyond the table is the program's fault."""
    index = e.read(i.operands[0], T.U32)
    table = i.operands[1]
    assert isinstance(table, Label)
    names = [(name, e.fresh("case")) for name in e.function.tables[table.name]]
    beyond = e.fresh("beyond")
    cases = " ".join(f"i32 {number}, label %{place}" for number, (_, place) in enumerate(names))
    e.line(f"switch i32 {index}, label %{beyond} [{cases}]")
    for name, place in names:
        e.label(place)
        _jump(e, i, name)
    e.label(beyond)
    set_fault(e, TRAP)


def _jump(e: Emitter, i: Instruction, name: str) -> None:
    """Go to a label; backwards costs budget, and in a polite loop everyone else gets a turn."""
    target = e.function.labels[name]
    if target > e.index:
        e.line(f"br label %{e.label_of(target)}")
        return
    is_polite = any(_is_polite(other) for other in e.function.body[target : e.index])
    budget = e.at(e.block(), BlockState.budget.offset)
    left = e.value(
        f"sub i64 {e.value(f'load i64, ptr {budget}')}, {YIELD_COST if is_polite else 1}"
    )
    e.line(f"store i64 {left}, ptr {budget}")
    spent, going_on = e.fresh("spent"), e.fresh("again")
    is_spent = e.value(f"icmp slt i64 {left}, 0")
    e.line(f"br i1 {is_spent}, label %{spent}, label %{going_on}")
    e.label(spent)
    set_fault(e, TIMEOUT)
    e.label(going_on)
    if is_polite:
        _stop(e, StopKind.YIELD, i, e.label_of(target))
    else:
        e.line(f"br label %{e.label_of(target)}")


def _is_polite(i: Instruction) -> bool:
    waits = {"volatile", "acquire", "relaxed", "acq_rel"}
    return i.opcode in ("atom", "red", "nanosleep") or not waits.isdisjoint(i.modifiers)


def leave(e: Emitter, i: Instruction) -> None:
    """ret, exit: a thread ends at an exit, and where its kernel returns."""
    if i.opcode == "ret" and not e.function.is_kernel:
        calls.give_back(e)
    else:
        e.line(f"ret i32 {DONE}")


def trap(e: Emitter, i: Instruction) -> None:
    set_fault(e, TRAP)


def _post(e: Emitter, word: int, operand: Operand, type_: ScalarType) -> None:
    """Put an operand into a word of the mailbox."""
    value = e.to_bits(e.read(operand, type_), type_)
    wide = e.value(f"zext i{type_.bits} {value} to i64") if type_.bits < 64 else value
    place = e.at("%frame", ThreadState.mailbox.offset + 8 * word)
    e.line(f"store i64 {wide}, ptr {place}")


def _fetch(e: Emitter, word: int, operand: Operand, type_: ScalarType) -> None:
    """Write a result that the scheduler left in the mailbox."""
    if not isinstance(operand, Sink):
        value = e.field("%frame", ThreadState.mailbox.offset + 8 * word, "i64")
        e.write(operand, e.resize(value, 64, type_), type_)


def barrier(e: Emitter, i: Instruction) -> None:
    """bar and barrier: .sync, .red, and bar.warp.sync."""
    if "warp" in i.modifiers:
        warp(e, i)
        return
    if "arrive" in i.modifiers:
        e.refuse("arriving at a barrier without waiting is not implemented")
    is_reduction = "red" in i.modifiers
    operands = list(i.operands)
    target = operands.pop(0) if is_reduction else None
    source = operands.pop() if is_reduction else None
    if not operands:
        operands = [Integer(0)]
    count = operands[1] if len(operands) > 1 else Integer(0)
    _post(e, 0, operands[0], T.U32)
    _post(e, 1, count, T.U32)
    if source is not None:
        _post(e, 2, source, T.PRED)
    resume = e.fresh("resume")
    _stop(e, StopKind.BARRIER, i, resume)
    e.label(resume)
    if target is not None:
        _fetch(e, 0, target, T.U32 if "popc" in i.modifiers else T.PRED)


# Types of the operands and of the results of each warp-wide instruction; a member mask is last.
_SHAPES: dict[str, tuple[tuple[ScalarType, ...], tuple[ScalarType, ...]]] = {
    "shfl": ((T.B32, T.U32, T.U32, T.U32), (T.B32, T.PRED)),
    "vote": ((T.PRED, T.U32), (T.PRED,)),
    "activemask": ((), (T.B32,)),
    "elect": ((T.U32,), (T.U32, T.PRED)),
    "bar": ((T.U32,), ()),
    "barrier": ((T.U32,), ()),
}


def warp(e: Emitter, i: Instruction) -> None:
    """Instructions that look at other lanes: the scheduler does the looking."""
    sources: tuple[ScalarType, ...]
    results: tuple[ScalarType, ...]
    if i.opcode in ("match", "redux"):
        sources = (i.type, T.U32)
        results = (T.B32, T.PRED) if i.opcode == "match" else (i.type,)
    else:
        sources, results = _SHAPES[i.opcode]
    if i.opcode == "vote" and "ballot" in i.modifiers:
        results = (T.B32,)
    operands = list(i.operands)
    targets: list[Operand] = []
    if results:
        first = operands.pop(0)
        targets = [first.first, first.second] if isinstance(first, Pair) else [first]
    for word, operand in enumerate(operands):
        if isinstance(operand, Vector):
            e.refuse("a vector can not go to other lanes")
        _post(e, word, operand, sources[word])
    if len(operands) < len(sources):
        # Without .sync there is no member mask: whoever is there takes part.
        _post(e, len(operands), Integer(0), T.U32)
    resume = e.fresh("resume")
    _stop(e, StopKind.WARP, i, resume)
    e.label(resume)
    for word, target in enumerate(targets):
        _fetch(e, word, target, results[word])
