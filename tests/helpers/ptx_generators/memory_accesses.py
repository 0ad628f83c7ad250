"""Statements of random PTX programs that touch memory or other threads.

None of them races. A thread writes its own memory, or memory that any order of writes leaves alike,
or it takes turns with other threads at barriers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers.ptx_generators.instruction_templates import SCRATCH_WORDS

if TYPE_CHECKING:
    from helpers.ptx_generators.statement_writer import Writer


def anywhere(w: Writer) -> None:
    """A statement that a thread may execute alone."""
    w.pick(
        [gather, gather, neighbour, neighbour, from_the_end, from_the_end, scratch, local, atomic,
         own_atomic, vectors, widths, widths, carry_chain]
    )(w)  # fmt: skip


def gather(w: Writer) -> None:
    """A load from the input at an index that is uniform, affine in the lane, or varying."""
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
    """input[tid - k] where tid >= k, or input[tid + k]. In other lanes the index wraps."""
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


def from_the_end(w: Writer) -> None:
    """input[i], where a negative i counts from the end, in no lane, some lanes or all lanes."""
    if w.number(0, 2):
        w.emit(f"sub.u32 %t, %tid_x, {w.pick([0, 0, 1, 5, 32, 40])}")
    else:
        w.emit(f"and.b32 %t, {w.register('R')}, 511")
        w.emit("sub.u32 %t, %t, 256")
    w.emit("cvt.s64.s32 %address, %t")
    w.emit(f"add.s64 %address, %address, {w.pick([0, 0, 3, -3])}")
    w.emit("shr.s64 %wrap, %address, 63")
    w.emit(f"and.b64 %wrap, {w.pick(['%wrap, 512', '512, %wrap', '%wrap, %rd_end'])}")
    w.emit(f"add.s64 %wrap, {w.pick(['%wrap, %address', '%address, %wrap'])}")
    kind = w.number(0, 3)
    if kind == 0:
        w.emit(f"{w.guard()}sub.s64 {w.register('L')}, %wrap, {w.pick(['7', '%address'])}")
    if kind == 2:
        relation = w.pick(["lt", "le", "gt", "ge"]) + w.pick([".s64", ".s64", ".u64"])
        both = w.pick(["%address, 7", "%address, -2", "%address, %rd_end", "%rd_end, %address"])
        w.emit(f"setp.{relation} %more, {both}")
        w.emit(f"@%more add.u32 {w.register('R')}, {w.register('R')}, 5")
    w.emit(f"{w.pick(['shl.b64 %address, %wrap, 2', 'mul.lo.s64 %address, %wrap, 4'])}")
    w.emit(f"add.s64 %address, {w.pick(['%rd_input, %address', '%address, %rd_input'])}")
    if kind == 1:
        w.emit(f"{w.guard()}ld.global.v2.u16 {{{w.register('H')}, %h_spare}}, [%address+4]")
    w.emit(f"{w.guard()}ld.global.u32 {w.register('R')}, [%address+{4 * w.number(0, 2)}]")


def scratch(w: Writer) -> None:
    """A store into the thread's own words, and perhaps a load of another word."""
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
    """Each operation has its own word, so that the order cannot show."""
    operation, place = w.pick(
        [("add.u32", 0), ("min.u32", 1), ("max.s32", 2), ("or.b32", 3), ("xor.b32", 4),
         ("and.b32", 5), ("min.s32", 6), ("add.u64", 8), ("max.u64", 10), ("min.s64", 12)]
    )  # fmt: skip
    guard, value = w.guard(), w.register("L" if operation.endswith("64") else "R")
    how = w.pick(["red.global.", "red.", "atom.global.", "red.relaxed.gpu.global."])
    result = f"{w.pick(['%t', '%u']) if value[1] == 'r' else '%address'}, " if how[0] == "a" else ""
    w.emit(f"{guard}{how}{operation} {result}[%rd_counters+{4 * place}], {value}")


def own_atomic(w: Writer) -> None:
    """An atomic on a word that no other thread touches, so its old value is deterministic."""
    place = f"[%rd_scratch+{4 * w.number(0, SCRATCH_WORDS - 1)}]"
    operation = w.pick(
        ["add.u32", "min.s32", "max.u32", "inc.u32", "dec.u32", "exch.b32", "cas.b32", "and.b32",
         "or.b32", "xor.b32", "min.u32", "max.s32", "add.s32"]
    )  # fmt: skip
    operands = f"{place}, {w.register('R')}"
    if operation == "cas.b32":
        operands += f", {w.register('R')}"
    w.emit(f"{w.guard()}atom.global.{operation} {w.register('R')}, {operands}")


def vectors(w: Writer) -> None:
    """Accesses of four words, and words that are split and joined."""
    first, second = w.pair()
    kind = w.number(0, 3)
    if kind == 2:
        pieces = ", ".join(w.register("H") for _ in range(4))
        w.emit(f"{w.guard()}mov.b64 {w.register('L')}, {{{pieces}}}")
        w.emit(f"{w.guard()}mov.b64 {{%h0, %h1, %h2, %h_spare}}, {w.register('L')}")
    elif kind == 3:
        w.emit(f"{w.guard()}mov.b32 {w.register('R')}, {{{w.register('H')}, {w.register('H')}}}")
        w.emit(f"{w.guard()}mov.b32 {{%h1, %h_spare}}, {w.register('R')}")
    elif kind:
        w.emit(f"{w.guard()}ld.global.v4.u32 {{{first}, {second}, _, _}}, [%rd_scratch]")
        w.emit(f"st.global.v2.u32 [%rd_scratch+8], {{{second}, {first}}}")
    else:
        w.emit(f"{w.guard()}mov.b64 {w.register('L')}, {{{first}, {second}}}")
        w.emit(f"{w.guard()}mov.b64 {{{second}, {first}}}, {w.register('L')}")


# A thread's own memory: 16 bytes in each space, and the register with the address.
_OWN = {
    "global": "%rd_scratch",
    "local": "%rd_local",
    "shared": "%own",
    "generic local": "%rd_generic_local",
    "generic shared": "%rd_generic_own",
    "generic global": "%rd_scratch",
    # Local memory of the caller, or of the caller's caller.
    "generic given": "%rd_given",
    "local given": "%rd_given_local",
}


def widths(w: Writer) -> None:
    """A store of some width into the thread's own memory, and a load of another width."""
    where = w.pick(list(_OWN))
    base, space = _OWN[where], "" if where.startswith("generic") else f".{where.split()[0]}"
    order = "" if space == ".local" else w.pick(["", "", ".volatile", ".relaxed.cta"])
    store, source, size = w.pick(
        [("u8", "R", 1), ("b16", "H", 2), ("u8", "H", 1), ("b32", "R", 4), ("b64", "L", 8),
         ("u16", "R", 2), ("u32", "L", 4)]
    )  # fmt: skip
    load, target, width = w.pick(
        [("u8", "R", 1), ("s8", "R", 1), ("s8", "H", 1), ("u16", "R", 2), ("s16", "L", 2),
         ("b32", "R", 4), ("s32", "L", 4), ("b64", "L", 8), ("u16", "H", 2)]
    )  # fmt: skip
    place = f"[{base}+{size * w.number(0, 16 // size - 1)}]"
    w.emit(f"{w.guard()}st{order}{space}.{store} {place}, {w.register(source)}")
    if w.number(0, 3) == 0 and "relaxed" not in order:
        first, second = w.pair()
        w.emit(f"{w.guard()}ld{order}{space}.v2.u32 {{{first}, {second}}}, [{base}+8]")
    place = f"[{base}+{width * w.number(0, 16 // width - 1)}]"
    w.emit(f"{w.guard()}ld{order}{space}.{load} {w.register(target)}, {place}")


def carry_chain(w: Writer) -> None:
    """A number of several words: the carry passes from instruction to instruction in each lane."""
    type_, pool = w.pick([("u32", "R"), ("s32", "R"), ("u64", "L"), ("u32", "R")])
    kind = w.pick(["add", "sub", "mad"])

    def operands(count: int) -> str:
        return ", ".join(w.register(pool) for _ in range(count))

    part = w.pick([".lo", ".hi"]) if kind == "mad" else ""
    count = 4 if kind == "mad" else 3
    w.emit(f"{kind}{part}.cc.{type_} {operands(count)}")
    for _ in range(w.number(0, 2)):
        kind = w.pick([kind, kind, "add" if kind == "mad" else kind])
        part = w.pick([".lo", ".hi"]) if kind == "mad" else ""
        how = w.pick([f"{kind}c{part}.cc", f"{kind}c{part}.cc", f"{kind}{part}.cc"])
        w.emit(f"{w.guard()}{how}.{type_} {operands(4 if kind == 'mad' else 3)}")
    w.emit(f"{w.guard()}{'addc' if kind == 'mad' else kind + 'c'}.{type_} {operands(3)}")
