"""Control flow in random PTX programs: branches, loops, switches, and exits from them.

Where the converged lanes of a warp are known, `w.members` names a register (or a constant) that
holds them in each of these lanes. Statements of `warp_collectives` may follow there. A branch or a
loop may find its lanes by a vote, or give this knowledge up.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from helpers.ptx_generators.statement_writer import Writer


@contextmanager
def _among(w: Writer, members: str | None) -> Iterator[None]:
    """Inside the block, `w.members` are these lanes."""
    before, w.members = w.members, members
    yield
    w.members = before


def _voters(w: Writer, predicate: str) -> str | None:
    """A register with the lanes that have this predicate; None if they are not to be known."""
    if w.members is None or w.number(0, 1):
        return None
    found = w.mask()
    w.emit(f"vote.sync.ballot.b32 {found}, {predicate}, {w.members}")
    return found


def branch(w: Writer, depth: int, *, is_uniform: bool) -> None:
    """if, or if and else, on a predicate that may differ between lanes."""
    otherwise, end = w.label(), w.label()
    has_else = w.number(0, 1)
    predicate = w.register("p")
    sign = w.pick(["", "!"])
    # The lanes that fall through, and the others.
    inside = _voters(w, predicate if sign else f"!{predicate}")
    others = None
    if inside and has_else:
        others = w.mask()
        w.emit(f"not.b32 {others}, {inside}")
        w.emit(f"and.b32 {others}, {others}, {w.members}")
    w.emit(f"@{sign}{predicate} bra {otherwise}")
    with _among(w, inside):
        w.statements(depth - 1, is_uniform=False)
    if has_else:
        w.emit(f"bra{w.pick(['', '.uni'])} {end}")
    w.mark(otherwise)
    if has_else:
        with _among(w, others):
            w.statements(depth - 1, is_uniform=False)
    w.mark(end)


def loop(w: Writer, depth: int, *, is_uniform: bool) -> None:
    """A counted loop: equally many trips for all lanes, or the low bits of a register in each
    lane."""
    counter = w.counter()
    again, onward, end = w.label(), w.label(), w.label()
    same_for_all = bool(is_uniform and w.number(0, 1))
    if same_for_all:
        w.emit(f"mov.u32 {counter}, {w.number(1, 3)}")
    else:
        w.emit(f"and.b32 {counter}, {w.register('R')}, 3")
    tests_first = not same_for_all and w.number(0, 1)
    # Each trip begins with a vote of its lanes. Then no lane may leave in the middle.
    members = w.members if same_for_all else None
    if tests_first and w.members and w.number(0, 1):
        members = w.mask()
        w.emit(f"mov.b32 {members}, {w.members}")
    w.mark(again)
    if tests_first:
        # Signed, because `begin_again` decrements the counter too, and may take it below 0.
        w.emit(f"setp.le.s32 %more, {counter}, 0")
        if members:
            w.emit(f"vote.sync.ballot.b32 {members}, !%more, {members}")
        w.emit(f"@%more bra {end}")
    w.breaks.append("" if same_for_all or members else end)
    w.continues.append("" if same_for_all or members else onward)
    w.restarts.append(("" if same_for_all or members else again, counter))
    with _among(w, members):
        w.statements(depth - 1, is_uniform=same_for_all)
    w.breaks.pop()
    w.continues.pop()
    w.restarts.pop()
    w.mark(onward)
    w.emit(f"sub.u32 {counter}, {counter}, 1")
    if tests_first:
        w.emit(f"bra {again}")
    else:
        # Signed, so that a counter that began at 0 makes one trip.
        w.emit(f"setp.gt.s32 %more, {counter}, 0")
        w.emit(f"@%more bra {again}")
    w.mark(end)


def switch(w: Writer, depth: int, *, is_uniform: bool) -> None:
    """brx.idx over a few cases. Some fall through to the next one, and some share a label."""
    table, end = w.label(), w.label()
    cases = [w.label() for _ in range(w.number(1, 3))]
    order = [w.pick(cases) for _ in range(4)]
    order[w.number(0, 3)] = end
    w.emit(f"and.b32 %t, {w.register('R')}, 3")
    w.lines.append(f"{table}: .branchtargets {', '.join(order)};")
    w.emit(f"brx.idx %t, {table}")
    with _among(w, None):
        for case in cases:
            w.mark(case)
            w.statements(depth - 1, is_uniform=False)
            if w.number(0, 1):
                w.emit(f"bra {end}")
    w.mark(end)


def tangle(w: Writer, depth: int, *, is_uniform: bool) -> None:
    """Unstructured control flow: jumps out of blocks, and into a loop."""
    end = w.label()
    w.breaks.append(end)
    w.continues.append("")
    w.restarts.append(("", ""))
    with _among(w, None):
        kind = w.number(0, 2)
        if kind == 0:
            # Several exits from nested blocks to one place.
            w.statements(depth - 1, is_uniform=False)
            leave(w)
            w.statements(depth - 1, is_uniform=False)
        elif kind == 1:
            # A loop inside another one; only the inner loop leaves both.
            counter, outer, inner = w.counter(), w.label(), w.label()
            w.emit(f"and.b32 {counter}, {w.register('R')}, 7")
            w.mark(outer)
            w.statements(depth - 1, is_uniform=False)
            w.mark(inner)
            w.statements(0, is_uniform=False)
            w.emit(f"sub.u32 {counter}, {counter}, 1")
            w.emit(f"setp.le.s32 %more, {counter}, 0")
            w.emit(f"@%more bra {end}")
            w.emit(f"@{w.register('p')} bra {inner}")
            w.statements(0, is_uniform=False)
            w.emit(f"bra {outer}")
        else:
            counter, again, middle = w.counter(), w.label(), w.label()
            w.emit(f"and.b32 {counter}, {w.register('R')}, 3")
            w.emit(f"@{w.register('p')} bra {middle}")
            w.mark(again)
            w.statements(depth - 1, is_uniform=False)
            w.mark(middle)
            w.statements(0, is_uniform=False)
            w.emit(f"sub.u32 {counter}, {counter}, 1")
            w.emit(f"setp.gt.s32 %more, {counter}, 0")
            w.emit(f"@%more bra {again}")
    w.restarts.pop()
    w.continues.pop()
    w.breaks.pop()
    w.mark(end)


def _inside(w: Writer) -> Iterator[tuple[str, str, tuple[str, str]]]:
    """The loops and blocks that one thread may leave alone, the innermost first."""
    if w.members is None:
        around = list(zip(w.breaks, w.continues, w.restarts, strict=True))
        yield from takewhile(lambda ways: ways[0], reversed(around))


def ways_out(w: Writer) -> list[str]:
    """Labels ahead to which one thread may jump alone, the innermost first."""
    return [label for ways in _inside(w) for label in ways[:2] if label]


def leave(w: Writer) -> None:
    """break or continue, of the innermost loop or block or of one around it."""
    w.emit(f"@{w.register('p')} bra {w.pick(ways_out(w))}")


def ways_back(w: Writer) -> list[tuple[str, str]]:
    """Headers of loops to which one thread may jump alone, with their counters."""
    return [restart for _, _, restart in _inside(w) if restart[0]]


def begin_again(w: Writer) -> None:
    """Start the next trip of this loop, or of one around it, in the middle of a trip."""
    again, counter = w.pick(ways_back(w))
    w.emit(f"sub.u32 {counter}, {counter}, 1")
    w.emit(f"setp.gt.and.s32 %more, {counter}, 0, {w.register('p')}")
    w.emit(f"@%more bra {again}")


def end_thread(w: Writer) -> None:
    """Some threads store a word and end here, in the middle of the program."""
    p, how = w.register("p"), w.pick(["exit", "ret"])
    w.emit(f"@{p} st.global.u32 [%rd_scratch+{4 * w.number(0, 3)}], {w.register('R')}")
    w.emit(f"@{p} {how}")
