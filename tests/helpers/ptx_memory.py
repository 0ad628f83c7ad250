"""Statements of random PTX programs that touch memory or other threads.

None of them races: a thread writes what is its own, or what every order of writing leaves alike,
or it takes turns with others at barriers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers.ptx_tables import SCRATCH_WORDS

if TYPE_CHECKING:
    from helpers.ptx_programs import Writer


def anywhere(w: Writer) -> None:
    """A statement that a thread may do alone."""
    w.pick([gather, gather, neighbour, neighbour, scratch, local, atomic, own_atomic, vectors])(w)


def together(w: Writer) -> None:
    """A statement that all threads of the block come to."""
    kinds = [exchange, exchange, shared_sum]
    # Where every warp is whole, its lanes may talk.
    w.pick([*kinds, shuffle, vote] if w.has_whole_warps else kinds)(w)


def gather(w: Writer) -> None:
    """A load from the input at an index that may be uniform, affine in the lane, or neither."""
    mask = 511
    w.emit(f"and.b32 %t, {w.pick([w.register('R'), '%index', '%tid_x'])}, {mask}")
    guard = w.guard()
    opcode, target, size = w.pick(
        [
            ("u32", "R", 4), ("s32", "R", 4), ("u8", "R", 1), ("s8", "R", 1), ("s16", "R", 2),
            ("u16", "H", 2), ("s8", "H", 1), ("b64", "L", 8), ("u32", "L", 4), ("s16", "L", 2),
        ]
    )  # fmt: skip
    wide = w.pick(["mad.wide.u32", "mad.wide.s32"])
    offset = w.number(0, 3) * size
    nc = w.pick(["", ".nc"])
    w.emit(f"{wide} %address, %t, {size}, %rd_input")
    w.emit(f"{guard}ld.global{nc}.{opcode} {w.register(target)}, [%address+{offset}]")
    if w.number(0, 3) == 0:
        w.emit("mad.wide.u32 %address, %t, 8, %rd_input")
        pair = f"{{{w.register('R')}, {w.pick(['%r_spare', '%r_other'])}}}"
        w.emit(f"{guard}ld.global.v2.u32 {pair}, [%address]")


def neighbour(w: Writer) -> None:
    """input[tid - k] where tid >= k, and input[tid + k]: the index wraps in other lanes."""
    distance = w.number(1, 9)
    wide = w.pick(["mul.wide.u32", "mul.wide.s32"])
    if w.number(0, 1):
        w.emit(f"setp.ge.u32 %more, %tid_x, {distance}")
        w.emit(f"sub.u32 %t, %tid_x, {distance}")
    else:
        w.emit(f"setp.lt.u32 %more, %tid_x, {64 - distance}")
        w.emit(f"add.u32 %t, %tid_x, {distance}")
    w.emit(f"{wide} %address, %t, 4")
    w.emit("add.s64 %address, %address, %rd_input")
    w.emit(f"@%more ld.global.u32 {w.register('R')}, [%address]")


def scratch(w: Writer) -> None:
    """A store into words of the thread's own, and perhaps a load of another."""
    w.emit(f"and.b32 %t, {w.register('R')}, {SCRATCH_WORDS - 1}")
    w.emit("mad.wide.u32 %address, %t, 4, %rd_scratch")
    guard = w.guard()
    w.emit(f"{guard}st.global.u32 [%address], {w.register('R')}")
    w.emit(f"ld.global.u32 {w.register('R')}, [%rd_scratch+{4 * w.number(0, 3)}]")


def local(w: Writer) -> None:
    w.emit(f"and.b32 %t, {w.register('R')}, 12")
    w.emit("cvt.u64.u32 %address, %t")
    w.emit("add.u64 %address, %address, %rd_local")
    w.emit(f"{w.guard()}st.local.u32 [%address], {w.register('R')}")
    w.emit(f"{w.guard()}ld.local.u32 {w.register('R')}, [words+{4 * w.number(0, 3)}]")


def atomic(w: Writer) -> None:
    """Each operation has a word of its own, so that the order can not show."""
    operation, place = w.pick(
        [("add.u32", 0), ("min.u32", 1), ("max.s32", 2), ("or.b32", 3), ("xor.b32", 4)]
    )
    guard, value = w.guard(), w.register("R")
    w.emit(f"{guard}red.global.{operation} [%rd_counters+{4 * place}], {value}")


def exchange(w: Writer) -> None:
    """Every thread leaves a word in shared memory and takes another's, between barriers."""
    w.emit(f"{w.guard()}st.shared.u32 [%slot], {w.register('R')}")
    w.emit("bar.sync 0")
    w.emit(f"add.u32 %t, %linear, {w.number(0, 40)}")
    w.emit("rem.u32 %t, %t, %count")
    w.emit("shl.b32 %t, %t, 2")
    w.emit("add.u32 %t, %t, %base")
    w.emit(f"ld.shared.u32 {w.register('R')}, [%t]")
    w.emit("bar.sync 0")


def own_atomic(w: Writer) -> None:
    """An atomic on a word that no other thread touches: its old value is known."""
    place = f"[%rd_scratch+{4 * w.number(0, SCRATCH_WORDS - 1)}]"
    operation = w.pick(
        ["add.u32", "min.s32", "max.u32", "inc.u32", "dec.u32", "exch.b32", "cas.b32"]
    )
    operands = f"{place}, {w.register('R')}"
    if operation == "cas.b32":
        operands += f", {w.register('R')}"
    w.emit(f"{w.guard()}atom.global.{operation} {w.register('R')}, {operands}")


def vectors(w: Writer) -> None:
    """Accesses of four words, and words that are split and joined."""
    first, second = w.pair()
    if w.number(0, 1):
        w.emit(f"{w.guard()}ld.global.v4.u32 {{{first}, {second}, _, _}}, [%rd_scratch]")
        w.emit(f"st.global.v2.u32 [%rd_scratch+8], {{{second}, {first}}}")
    else:
        w.emit(f"{w.guard()}mov.b64 {w.register('L')}, {{{first}, {second}}}")
        w.emit(f"{w.guard()}mov.b64 {{{second}, {first}}}, {w.register('L')}")


def shared_sum(w: Writer) -> None:
    """Every thread adds to one word of shared memory, and reads it behind a barrier."""
    w.emit(f"{w.guard()}red.shared.add.u32 [total], {w.register('R')}")
    w.emit("bar.sync 0")
    w.emit(f"ld.shared.u32 {w.register('R')}, [total]")
    w.emit("bar.sync 0")


def shuffle(w: Writer) -> None:
    mode, clamp = w.pick([("up", 0), ("down", 31), ("bfly", 31), ("idx", 31), ("down", 0x181F)])
    distance = w.pick([str(w.number(0, 31)), w.register("R")])
    target = w.register("R") + w.pick(["", "|" + w.register("P")])
    w.emit(f"shfl.sync.{mode}.b32 {target}, {w.register('R')}, {distance}, {clamp}, 0xFFFFFFFF")


def vote(w: Writer) -> None:
    mode = w.pick(["all", "any", "uni", "ballot"])
    target = w.register("R") if mode == "ballot" else w.register("P")
    type_ = "b32" if mode == "ballot" else "pred"
    source = w.pick(["", "!"]) + w.register("p")
    w.emit(f"vote.sync.{mode}.{type_} {target}, {source}, 0xFFFFFFFF")
