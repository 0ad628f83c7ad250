"""Statements of random PTX programs that all threads of a block reach, with barriers in them.

Every exchange ends with a barrier of all threads, so that the next one may reuse the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helpers.ptx_generators.statement_writer import Writer


def together(w: Writer) -> None:
    """A statement that all threads of the block reach."""
    kinds = [exchange, exchange, shared_sum, reduction, apart]
    if w.has_whole_warps and w.threads > 32:
        kinds += [some_warps, some_warps, produce]
    w.pick(kinds)(w)


def _everyone(w: Writer) -> str:
    number = w.number(0, 3)
    if w.number(0, 3) == 0:
        return f"bar.sync {_named(w, number)}"
    return w.pick([f"bar.sync {number}", f"barrier.sync {number}", f"barrier.cta.sync {number}"])


def _named(w: Writer, number: int, threads: int = 0) -> str:
    """The operands of a barrier, sometimes in registers that are equal in all threads."""
    source = str(number)
    match w.number(0, 3):
        case 0:
            w.emit(f"mov.u32 %named, {number}")
            source = "%named"
        case 1:
            w.emit("and.b32 %named, %linear, 0")
            w.emit(f"add.u32 %named, %named, {number}")
            source = "%named"
    if not threads:
        return source
    if w.number(0, 1):
        return f"{source}, {threads}"
    w.emit(f"mov.u32 %counted, {threads}")
    return f"{source}, %counted"


def exchange(w: Writer) -> None:
    """Every thread writes a word of shared memory and reads another one, between barriers."""
    w.emit(f"{w.guard()}st.shared.u32 [%slot], {w.register('R')}")
    w.emit(_everyone(w))
    _take(w, w.guard())
    w.emit(_everyone(w))


def _take(w: Writer, guard: str) -> None:
    w.emit(f"add.u32 %t, %linear, {w.number(0, 40)}")
    w.emit("rem.u32 %t, %t, %count")
    w.emit("shl.b32 %t, %t, 2")
    w.emit("add.u32 %t, %t, %base")
    w.emit(f"{guard}ld.shared.u32 {w.register('R')}, [%t]")


def shared_sum(w: Writer) -> None:
    """Every thread adds to one word of shared memory, and reads the word behind a barrier."""
    w.emit(f"{w.guard()}red.shared.add.u32 [total], {w.register('R')}")
    w.emit(_everyone(w))
    w.emit(f"ld.shared.u32 {w.register('R')}, [total]")
    w.emit(_everyone(w))


def reduction(w: Writer) -> None:
    """bar.red: a reduction of all threads' predicates."""
    operation, target = w.pick([("popc.u32", "R"), ("and.pred", "P"), ("or.pred", "P")])
    how = w.pick(["bar", "barrier", "barrier.cta"])
    source = w.pick(["", "!"]) + w.register("p")
    w.emit(f"{how}.red.{operation} {w.register(target)}, {w.number(0, 3)}, {source}")


def apart(w: Writer) -> None:
    """Lanes of a warp reach one barrier at two places, which .sync without .aligned allows."""
    otherwise, end = w.label(), w.label()
    number = w.number(0, 15)
    w.emit(f"st.shared.u32 [%slot], {w.register('R')}")
    w.emit(f"@{w.register('p')} bra {otherwise}")
    w.compute()
    w.emit(f"barrier.sync {number}")
    _take(w, "")
    w.emit(f"bra {end}")
    w.mark(otherwise)
    w.emit(f"barrier.sync {number}")
    w.compute()
    w.mark(end)
    w.emit("barrier.sync 0")


def some_warps(w: Writer) -> None:
    """The first warps have their own barrier; the branch to it diverges in no warp."""
    first = w.number(1, w.threads // 32 - 1)
    end = w.label()
    w.emit(f"st.shared.u32 [%slot], {w.register('R')}")
    w.emit(f"setp.ge.u32 %more, %linear, {32 * first}")
    w.emit(f"@%more bra {end}")
    w.emit(f"bar.sync {_named(w, w.number(1, 15), 32 * first)}")
    w.emit(f"add.u32 %t, %linear, {w.number(0, 40)}")
    w.emit(f"rem.u32 %t, %t, {32 * first}")
    w.emit("mad.lo.u32 %t, %t, 4, %base")
    w.emit(f"ld.shared.u32 {w.register('R')}, [%t]")
    w.mark(end)
    w.emit("bar.sync 0")


def produce(w: Writer) -> None:
    """The first warp writes, arrives and goes on; the other warps wait for it and read."""
    number = w.number(1, 15)
    consumer, end = w.label(), w.label()
    w.emit("setp.ge.u32 %more, %linear, 32")
    w.emit(f"@%more bra {consumer}")
    w.emit(f"st.shared.u32 [%slot], {w.register('R')}")
    w.emit(f"bar.arrive {_named(w, number, w.threads)}")
    w.emit(f"bra {end}")
    w.mark(consumer)
    w.emit(f"bar.sync {_named(w, number, w.threads)}")
    w.emit("and.b32 %t, %linear, 31")
    w.emit("mad.lo.u32 %t, %t, 4, %base")
    w.emit(f"ld.shared.u32 {w.register('R')}, [%t]")
    w.mark(end)
    w.emit("bar.sync 0")
