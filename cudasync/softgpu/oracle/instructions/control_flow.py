"""Cellar. Branches, ends, and the stops at which a thread returns to the scheduler.

A stop has a number. The thread function returns the number and keeps it in its record. When called
again, it goes on after the stop. At barriers and warp-wide instructions, operands go into the
thread's mailbox, and results come back in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Integer, Label, Pair, Sink, Vector
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.emission.state_records import DONE, TRAP, ThreadState
from cudasync.softgpu.oracle.emission.suspension_points import STOP_COST, Stop, StopKind
from cudasync.softgpu.oracle.instructions import calls
from cudasync.softgpu.oracle.instructions.load_store import set_fault, spend
from cudasync.softgpu.semantics.memory_visibility import (
    gets_on,
    is_block_barrier,
    is_collective,
    is_fence,
    sees,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType


def _stop(
    e: Emitter, kind: StopKind, i: Instruction, resume: str, *, gets_on: bool = False
) -> None:
    e.stops.append(Stop(kind, i, resume, gets_on))
    number = len(e.stops)
    e.line(f"store i32 {number}, ptr {e.at('%frame', ThreadState.position.offset)}")
    e.line(f"ret i32 {number}")


def branch(e: Emitter, i: Instruction) -> None:
    target = i.operands[0]
    assert isinstance(target, Label)
    _jump(e, i, target.name)


def indexed_branch(e: Emitter, i: Instruction) -> None:
    """Lower brx.idx; an index beyond the table is the program's fault."""
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
    """Go to a label. Backwards costs budget; in a polite loop the thread yields its turn."""
    target = e.function.labels[name]
    if target > e.index:
        e.line(f"br label %{e.label_of(target)}")
        return
    body = e.function.body[target : e.index]
    is_polite = _is_polite(e, body)
    stops = any(is_fence(each) or is_collective(each) or is_block_barrier(each) for each in body)
    # A stop is a turn in the scheduler: as slow as many instructions.
    spend(e, len(body) + 1 + (STOP_COST if is_polite or stops else 0))
    if is_polite:
        gets_on_too = any(gets_on(each) for each in body)
        _stop(e, StopKind.YIELD, i, e.label_of(target), gets_on=gets_on_too)
    else:
        e.line(f"br label %{e.label_of(target)}")


def _is_polite(e: Emitter, body: Sequence[Instruction]) -> bool:
    """Whether a loop over these instructions may wait for other threads."""
    has_fence = any(is_fence(each) for each in body)
    return any(
        sees(each, behind_fence=has_fence)
        or each.opcode in ("red", "nanosleep")
        or (each.opcode == "call" and e.places.may_see(each))
        for each in body
    )


def leave(e: Emitter, i: Instruction) -> None:
    """Lower ret, exit: a thread ends at an exit, or where its kernel returns."""
    if i.opcode == "ret" and not e.function.is_kernel:
        calls.give_back(e)
    else:
        e.line(f"ret i32 {DONE}")


def trap(e: Emitter, i: Instruction) -> None:
    set_fault(e, TRAP)


def _post(e: Emitter, word: int, operand: Operand, type_: ScalarType) -> None:
    """Put an operand into a word of the mailbox."""
    _post_value(e, word, e.read(operand, type_), type_)


def _post_value(e: Emitter, word: int, value: str, type_: ScalarType) -> None:
    value = e.to_bits(value, type_)
    wide = e.value(f"zext i{type_.bits} {value} to i64") if type_.bits < 64 else value
    place = e.at("%frame", ThreadState.mailbox.offset + 8 * word)
    e.line(f"store i64 {wide}, ptr {place}")


def _fetch(e: Emitter, word: int, operand: Operand, type_: ScalarType) -> None:
    """Write a result that the scheduler left in the mailbox."""
    if not isinstance(operand, Sink):
        value = e.field("%frame", ThreadState.mailbox.offset + 8 * word, "i64")
        e.write(operand, e.resize(value, 64, type_), type_)


def barrier(e: Emitter, i: Instruction) -> None:
    """Lower bar and barrier: .sync, .red, and bar.warp.sync."""
    if "warp" in i.modifiers:
        warp(e, i)
        return
    if "arrive" in i.modifiers and len(i.operands) != 2:
        e.refuse("bar.arrive needs a count of threads")
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


# Types of the operands and of the results of each warp-wide instruction. A member mask comes last.
_SHAPES: dict[str, tuple[tuple[ScalarType, ...], tuple[ScalarType, ...]]] = {
    "shfl": ((T.B32, T.U32, T.U32, T.U32), (T.B32, T.PRED)),
    "vote": ((T.PRED, T.U32), (T.PRED,)),
    "activemask": ((), (T.B32,)),
    "elect": ((T.U32,), (T.U32, T.PRED)),
    "bar": ((T.U32,), ()),
    "barrier": ((T.U32,), ()),
}


# An instruction has one of these modifiers.
_MODES = {
    "shfl": frozenset({"up", "down", "bfly", "idx"}),
    "vote": frozenset({"all", "any", "uni", "ballot"}),
    "match": frozenset({"any", "all"}),
    "redux": frozenset({"add", "min", "max", "and", "or", "xor"}),
}


def warp(e: Emitter, i: Instruction) -> None:
    """Lower an instruction that reads other lanes: the scheduler evaluates it."""
    modes = _MODES.get(i.opcode)
    if modes is not None and modes.isdisjoint(i.modifiers):
        e.refuse(f"{i.opcode} needs one of {', '.join(sorted(modes))}")
    sources: tuple[ScalarType, ...]
    results: tuple[ScalarType, ...]
    if i.opcode == "redux" and not _is_known_reduction(i):
        e.refuse("this form of redux is not implemented")
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
    values = []
    for word, operand in enumerate(operands):
        if isinstance(operand, Vector):
            e.refuse("a vector cannot be exchanged between lanes")
        values.append((e.read(operand, sources[word]), sources[word]))
    if len(operands) < len(sources):
        # Without .sync there is no member mask: all lanes that are there take part.
        values.append(("0", T.U32))
    for target, value, type_ in zip(
        targets, exchange(e, i, values, results), results, strict=False
    ):
        e.write(target, value, type_)


def _is_known_reduction(i: Instruction) -> bool:
    if i.type.is_float:
        return not {"min", "max"}.isdisjoint(i.modifiers)
    return {"abs", "NaN"}.isdisjoint(i.modifiers)


def exchange(
    e: Emitter,
    i: Instruction,
    values: Sequence[tuple[str, ScalarType]],
    results: Sequence[ScalarType],
) -> list[str]:
    """Stop with these values for the other lanes, and resume with results of these types."""
    for word, (value, type_) in enumerate(values):
        _post_value(e, word, value, type_)
    resume = e.fresh("resume")
    _stop(e, StopKind.WARP, i, resume)
    e.label(resume)
    heard = [
        e.field("%frame", ThreadState.mailbox.offset + 8 * word, "i64")
        for word in range(len(results))
    ]
    return [e.resize(each, 64, type_) for each, type_ in zip(heard, results, strict=True)]
