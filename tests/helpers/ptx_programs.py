"""Random PTX programs that any correct lowering runs alike, as a Hypothesis strategy.

Every program is well typed and has one result: no race, no access out of bounds, no approximate
instruction, no bits of a NaN in an integer, nothing read before it is written. Within that it
branches, loops (differently in each lane), breaks, guards, exchanges data through shared memory
and barriers, indexes local memory, and does atomics whose order does not show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from helpers import ptx_memory
from helpers.ptx_tables import DOUBLES, EDGES, POOLS, PREDICATES, SCRATCH_WORDS, SINGLES, TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Callable

# Indices are below half of this; the rest is room for elements of 8 bytes and offsets.
INPUT_WORDS = 1024 + 16
BLOCKS = ((1,), (5,), (32,), (33,), (64,), (70,), (8, 4), (16, 3), (3, 5, 2))
GRIDS = ((1,), (2,), (3,), (2, 2))


@dataclass(frozen=True)
class Program:
    """A kernel `test(input, words, longs, singles, doubles, counters)` and its launch."""

    text: str
    grid: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def threads(self) -> int:
        return math.prod((*self.grid, *self.block))

    def _repr_pretty_(self, printer, cycle) -> None:
        """Hypothesis shows a program as the text that it is."""
        printer.text(f"grid {self.grid} block {self.block}\n{self.text}")


class Writer:
    """Writes the body of one program, drawing every choice."""

    def __init__(self, draw: Callable[..., Any], *, has_whole_warps: bool) -> None:
        self._draw = draw
        # Whether every warp has 32 threads, all of which live to the end.
        self.has_whole_warps = has_whole_warps
        self.lines: list[str] = []
        self.loops = 0
        self._labels = 0
        # Labels behind the loops and blocks that the point being written is in; "" for a loop that
        # all threads have to leave together, as there may be barriers in it.
        self._breaks: list[str] = []

    def pick(self, options):
        return self._draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def register(self, letter: str) -> str:
        if letter in "Pp":
            return f"%p{self.number(0, PREDICATES - 1)}"
        return f"%{letter.lower()}{self.number(0, POOLS[letter][1] - 1)}"

    def pair(self) -> tuple[str, str]:
        """Two registers that are not one."""
        first = self.number(0, POOLS["R"][1] - 1)
        second = (first + self.number(1, POOLS["R"][1] - 1)) % POOLS["R"][1]
        return f"%r{first}", f"%r{second}"

    def emit(self, text: str) -> None:
        self.lines.append(f"    {text};")

    def label(self) -> str:
        self._labels += 1
        return f"L{self._labels}"

    def mark(self, label: str) -> None:
        self.lines.append(f"{label}:")

    # ---- statements

    def statements(self, depth: int, *, is_uniform: bool) -> None:
        """A few statements; where control flow is uniform, barriers are among them."""
        for _ in range(self.number(1, 6)):
            kinds = ["compute", "compute", "compute", "anywhere", "anywhere"]
            if depth > 0:
                kinds += ["branch", "loop"]
            if is_uniform:
                kinds += ["together"]
            elif depth > 0:
                kinds += ["tangle"]
            if self.breakable():
                kinds += ["leave"]
            match self.pick(kinds):
                case "compute":
                    self.compute()
                case "anywhere":
                    ptx_memory.anywhere(self)
                case "together":
                    ptx_memory.together(self)
                case "branch":
                    self.branch(depth, is_uniform=is_uniform)
                case "loop":
                    self.loop(depth, is_uniform=is_uniform)
                case "tangle":
                    self.tangle(depth)
                case "leave":
                    self.leave()

    def guard(self) -> str:
        return self.pick(["", "", "", f"@{self.register('p')} ", f"@!{self.register('p')} "])

    def compute(self) -> None:
        """One instruction of the tables."""
        opcode, target, *sources = self.pick(TEMPLATES)
        letter = sources[0] if sources and sources[0] in POOLS else target
        operands = [self.register(target)] + [self.source(s, letter) for s in sources]
        self.emit(f"{self.guard()}{opcode} {', '.join(operands)}")

    def source(self, kind: str, letter: str) -> str:
        if kind == "w":
            return self.pick([self.register("R"), str(self.number(0, 70))])
        if kind == "n":
            return self.pick([self.register(letter), self.constant(letter)])
        return kind if kind[0] in "%0" else self.register(kind)

    def constant(self, letter: str) -> str:
        if letter == "F":
            return f"0f{self.pick(SINGLES):08X}"
        if letter == "D":
            return f"0d{self.pick(DOUBLES):016X}"
        return str(self.pick(EDGES[letter]))

    def branch(self, depth: int, *, is_uniform: bool) -> None:
        """if, or if and else, on a predicate that lanes may differ in."""
        otherwise, end = self.label(), self.label()
        has_else = self.number(0, 1)
        self.emit(f"@{self.pick(['', '!'])}{self.register('p')} bra {otherwise}")
        self.statements(depth - 1, is_uniform=False)
        if has_else:
            self.emit(f"bra{self.pick(['', '.uni'])} {end}")
        self.mark(otherwise)
        if has_else:
            self.statements(depth - 1, is_uniform=False)
        self.mark(end)

    def loop(self, depth: int, *, is_uniform: bool) -> None:
        """A counted loop: of as many trips for all, or of a register's low bits for each lane."""
        counter = f"%counter{self.loops}"
        self.loops += 1
        again, end = self.label(), self.label()
        same_for_all = is_uniform and self.number(0, 1)
        if same_for_all:
            self.emit(f"mov.u32 {counter}, {self.number(1, 3)}")
        else:
            self.emit(f"and.b32 {counter}, {self.register('R')}, 3")
        tests_first = not same_for_all and self.number(0, 1)
        self.mark(again)
        if tests_first:
            self.emit(f"setp.eq.u32 %more, {counter}, 0")
            self.emit(f"@%more bra {end}")
        self._breaks.append("" if same_for_all else end)
        self.statements(depth - 1, is_uniform=bool(same_for_all))
        self._breaks.pop()
        if tests_first:
            self.emit(f"sub.u32 {counter}, {counter}, 1")
            self.emit(f"bra {again}")
        else:
            self.emit(f"sub.u32 {counter}, {counter}, 1")
            # Signed: a counter that began at 0 makes one trip.
            self.emit(f"setp.gt.s32 %more, {counter}, 0")
            self.emit(f"@%more bra {again}")
        self.mark(end)

    def tangle(self, depth: int) -> None:
        """Control flow that no structured language has: jumps out of blocks, and into a loop."""
        end = self.label()
        self._breaks.append(end)
        if self.number(0, 1):
            # Several ways out of nested blocks to one place.
            self.statements(depth - 1, is_uniform=False)
            self.leave()
            self.statements(depth - 1, is_uniform=False)
        else:
            counter, again, middle = f"%counter{self.loops}", self.label(), self.label()
            self.loops += 1
            self.emit(f"and.b32 {counter}, {self.register('R')}, 3")
            self.emit(f"@{self.register('p')} bra {middle}")
            self.mark(again)
            self.statements(depth - 1, is_uniform=False)
            self.mark(middle)
            self.statements(0, is_uniform=False)
            self.emit(f"sub.u32 {counter}, {counter}, 1")
            self.emit(f"setp.gt.s32 %more, {counter}, 0")
            self.emit(f"@%more bra {again}")
        self._breaks.pop()
        self.mark(end)

    def breakable(self) -> list[str]:
        """Labels ahead to which one thread may jump alone, the innermost first."""
        inner: list[str] = []
        for label in reversed(self._breaks):
            if not label:
                break
            inner.append(label)
        return inner

    def leave(self) -> None:
        """break, out of one loop or block or of several."""
        self.emit(f"@{self.register('p')} bra {self.pick(self.breakable())}")


_HEAD = """\
.version 6.4
.target sm_75
.address_size 64

.visible .entry test(
    .param .u64 input,
    .param .u64 scratch,
    .param .u64 longs,
    .param .u64 singles,
    .param .u64 doubles,
    .param .u64 counters
)
{
    .reg .u32 %tid_x, %linear, %count, %index, %t, %base, %slot, %r_spare, %r_other;
    .reg .u64 %rd_input, %rd_scratch, %rd_local, %rd_counters, %address;
    .reg .pred %more;
REGISTERS
    .local .align 8 .b8 words[16];
    .shared .align 4 .b8 exchange[512];
    .shared .u32 total;

    mov.u32 %tid_x, %tid.x;
    mov.u32 %linear, %tid.z;
    mov.u32 %count, %ntid.y;
    mov.u32 %t, %tid.y;
    mad.lo.u32 %linear, %linear, %count, %t;
    mov.u32 %t, %ntid.x;
    mad.lo.u32 %linear, %linear, %t, %tid_x;
    mul.lo.u32 %count, %count, %t;
    mov.u32 %t, %ntid.z;
    mul.lo.u32 %count, %count, %t;
    mov.u32 %index, %ctaid.y;
    mov.u32 %t, %nctaid.x;
    mov.u32 %base, %ctaid.x;
    mad.lo.u32 %index, %index, %t, %base;
    mad.lo.u32 %index, %index, %count, %linear;
    mov.u32 %base, exchange;
    mad.lo.u32 %slot, %linear, 4, %base;
    st.shared.u32 [%slot], %index;
    st.shared.u32 [total], 0;
    ld.param.u64 %rd_input, [input];
    ld.param.u64 %rd_scratch, [scratch];
    mad.wide.u32 %rd_scratch, %index, 64, %rd_scratch;
    ld.param.u64 %rd_counters, [counters];
    mov.u64 %rd_local, words;
    st.local.u32 [words], 1;
    st.local.u32 [words+4], %index;
    st.local.u64 [words+8], 3;
    mov.u32 %r_spare, 0;
    mov.u32 %r_other, 0;
    mad.wide.u32 %address, %index, 4, %rd_input;
"""


def _prologue(writer: Writer) -> None:
    """Give every register a value: from the input, so that no lowering can know it."""
    for index in range(POOLS["R"][1]):
        writer.emit(f"ld.global.u32 %r{index}, [%address+{8 * index}]")
    for index in range(POOLS["H"][1]):
        writer.emit(f"ld.global.u16 %h{index}, [%address+{8 * index}]")
    for index in range(POOLS["F"][1]):
        writer.emit(f"ld.global.f32 %f{index}, [%address+{4 * index + 1024}]")
    for index in range(POOLS["L"][1]):
        writer.emit(f"cvt.s64.s32 %l{index}, %r{index}")
    for index in range(POOLS["D"][1]):
        writer.emit(f"cvt.f64.f32 %d{index}, %f{index}")
    for index in range(PREDICATES):
        writer.emit(f"setp.lt.s32 %p{index}, %r{index}, %r{index + 1}")


def _epilogue(writer: Writer) -> None:
    """Store every register; a loop's target may be behind it, so that this is one block."""
    words = [f"%r{i}" for i in range(POOLS["R"][1])] + ["%r_spare", "%r_other"]
    for index in range(POOLS["H"][1]):
        writer.emit(f"cvt.u32.u16 %t, %h{index}")
        writer.emit(f"st.global.u32 [%rd_scratch+{4 * (SCRATCH_WORDS + len(words))}], %t")
        words.append("")
    for index, register in enumerate(words):
        if register:
            writer.emit(f"st.global.u32 [%rd_scratch+{4 * (SCRATCH_WORDS + index)}], {register}")
    for name, letter, size in (("longs", "L", 8), ("singles", "F", 4), ("doubles", "D", 8)):
        count = POOLS[letter][1]
        writer.emit(f"ld.param.u64 %address, [{name}]")
        writer.emit(f"mad.wide.u32 %address, %index, {size * (count + 1)}, %address")
        for index in range(count):
            register = f"%{letter.lower()}{index}"
            writer.emit(f"st.global.{POOLS[letter][0]} [%address+{size * index}], {register}")
    writer.emit("ret")


@st.composite
def programs(draw) -> Program:
    """A program with its launch."""
    block, grid = draw(st.sampled_from(BLOCKS)), draw(st.sampled_from(GRIDS))
    leaves_early = draw(st.integers(0, 4)) == 0
    whole = not leaves_early and math.prod(block) % 32 == 0
    writer = Writer(draw, has_whole_warps=whole)
    _prologue(writer)
    # Some threads may end before everything else; barriers go on without them.
    if leaves_early:
        writer.emit(f"setp.eq.u32 %more, %tid_x, {draw(st.integers(0, 3))}")
        writer.emit("@%more exit")
    writer.emit("bar.sync 0")
    writer.statements(3, is_uniform=True)
    writer.statements(2, is_uniform=True)
    _epilogue(writer)
    declared = [
        f"    .reg .{type_} %{letter.lower()}<{n}>;" for letter, (type_, n) in POOLS.items()
    ]
    declared.append(f"    .reg .pred %p<{PREDICATES}>;")
    declared.append(f"    .reg .u32 %counter<{writer.loops + 1}>;")
    head = _HEAD.replace("REGISTERS", "\n".join(declared))
    return Program(head + "\n".join(writer.lines) + "\n}\n", grid, block)
