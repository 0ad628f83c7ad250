"""Statements of random PTX programs that exchange data in a warp, or in a part of it.

`w.members` holds the converged lanes. No lane reads a value from a lane outside of it, because that
value is undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helpers.ptx_generators.statement_writer import Writer


def talk(w: Writer) -> None:
    """One exchange among the converged lanes, or among groups of them."""
    kinds = [vote, match, reduce, leader, neighbour, grouped]
    if w.has_whole_warps and w.members == "0xFFFFFFFF":
        kinds += [shuffle, shuffle, tile, tile, active]
    w.pick(kinds)(w)


def shuffle(w: Writer) -> None:
    """A shuffle of a whole warp, with any segments and bounds."""
    mode, clamp = w.pick(
        [
            ("up", 0), ("down", 31), ("bfly", 31), ("idx", 31), ("down", 0x181F), ("up", 0x1800),
            ("idx", 0x1C1F), ("bfly", 0x101F), ("idx", 0x0807), ("down", 0x1003), ("up", 5),
        ]
    )  # fmt: skip
    control = w.pick([str(clamp), w.register("R")])
    distance = w.pick([str(w.number(0, 40)), w.register("R")])
    target = w.register("R") + w.pick(["", "|" + w.register("P")])
    w.emit(f"shfl.sync.{mode}.b32 {target}, {w.register('R')}, {distance}, {control}, {w.members}")


def vote(w: Writer, members: str = "") -> None:
    mode = w.pick(["all", "any", "uni", "ballot"])
    target = w.register("R") if mode == "ballot" else w.register("P")
    type_ = "b32" if mode == "ballot" else "pred"
    source = w.pick(["", "!"]) + w.register("p")
    w.emit(f"vote.sync.{mode}.{type_} {target}, {source}, {members or w.members}")


def match(w: Writer, members: str = "") -> None:
    members = members or w.members or ""
    if w.number(0, 1):
        w.emit(f"and.b32 %t, {w.register('R')}, {w.pick([1, 3, 0x80000000])}")
    else:
        w.emit(f"mov.b32 %t, {w.register('R')}")
    match w.number(0, 3):
        case 0:
            w.emit(f"match.any.sync.b32 {w.register('R')}, %t, {members}")
        case 1:
            w.emit(f"match.any.sync.b64 {w.register('R')}, {w.register('L')}, {members}")
        case 2:
            target = f"{w.register('R')}|{w.register('P')}"
            w.emit(f"match.all.sync.b32 {target}, %t, {members}")
        case _:
            w.emit(f"match.all.sync.b64 {w.register('R')}, {w.register('L')}, {members}")


def reduce(w: Writer, members: str = "") -> None:
    operation = w.pick(
        ["add.u32", "add.s32", "min.s32", "max.s32", "min.u32", "max.u32", "and.b32", "or.b32",
         "xor.b32"]
    )  # fmt: skip
    source = w.register("R")
    w.emit(f"redux.sync.{operation} {w.register('R')}, {source}, {members or w.members}")


def leader(w: Writer, members: str = "") -> None:
    """The word of the highest or lowest converged lane."""
    members = members or w.members or ""
    if w.number(0, 1):
        w.emit(f"bfind.u32 %t, {members}")
    else:
        w.emit(f"brev.b32 %t, {members}")
        w.emit("clz.b32 %t, %t")
    w.emit(f"shfl.sync.idx.b32 {w.register('R')}, {w.register('R')}, %t, 31, {members}")


def neighbour(w: Writer, members: str = "") -> None:
    """A shuffle; its result is kept if the source lane takes part."""
    members = members or w.members or ""
    mode, control = w.pick([("up", 0), ("down", 31), ("bfly", 31)])
    distance = w.number(0, 31)
    operation = {"up": "sub", "down": "add", "bfly": "xor"}[mode]
    type_ = "b32" if operation == "xor" else "u32"
    w.emit(f"shfl.sync.{mode}.b32 %u|%more, {w.register('R')}, {distance}, {control}, {members}")
    w.emit("mov.u32 %t, %laneid")
    w.emit(f"{operation}.{type_} %t, %t, {distance}")
    w.emit("and.b32 %t, %t, 31")
    w.emit(f"shr.u32 %t, {members}, %t")
    w.emit("and.b32 %t, %t, 1")
    w.emit("setp.ne.and.u32 %more, %t, 0, %more")
    w.emit(f"@%more mov.b32 {w.register('R')}, %u")


def tile(w: Writer) -> None:
    """Groups of 2 to 16 lanes exchange data, in one instruction for all groups."""
    size = w.pick([2, 4, 8, 16])
    w.emit("mov.u32 %t, %laneid")
    w.emit(f"and.b32 %t, %t, {32 - size}")
    w.emit(f"shl.b32 %m_tile, {(1 << size) - 1}, %t")
    if w.number(0, 1):
        mode, bound = w.pick([("up", 0), ("down", 31), ("bfly", 31), ("idx", 31)])
        control = (32 - size) << 8 | bound
        distance = w.pick([str(w.number(0, size - 1)), w.register("R")])
        if mode == "bfly" and not distance.isdigit():
            distance = "1"
        target = w.register("R") + w.pick(["", "|" + w.register("P")])
        operands = f"{target}, {w.register('R')}, {distance}, {control}, %m_tile"
        w.emit(f"shfl.sync.{mode}.b32 {operands}")
    else:
        w.pick([vote, match, reduce, leader])(w, "%m_tile")


def grouped(w: Writer) -> None:
    """Lanes with equal low bits find each other, and exchange data."""
    w.emit(f"and.b32 %t, {w.register('R')}, {w.pick([1, 3])}")
    w.emit(f"match.any.sync.b32 %m_tile, %t, {w.members}")
    w.pick([vote, match, reduce, leader, neighbour])(w, "%m_tile")


def active(w: Writer) -> None:
    w.emit("bar.warp.sync 0xFFFFFFFF")
    w.emit(f"activemask.b32 {w.register('R')}")
