"""Random PTX programs that every correct lowering runs alike, as a Hypothesis strategy.

Every program is well typed and has one result: no race, no access out of bounds, no approximate
instruction, no bits of a NaN in an integer, no read before a write. Within these limits it
branches, loops (differently in each lane), breaks, guards, calls, recurses and ends threads. It
exchanges data through shared memory, barriers and lanes, indexes local memory, and does atomics
whose order does not show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from helpers.ptx_generators import device_functions
from helpers.ptx_generators.instruction_templates import POOLS, PREDICATES, SCRATCH_WORDS
from helpers.ptx_generators.statement_writer import Choices, Drawn, Seeded, Writer
from hypothesis import strategies as st

# Indices are below half of this. The rest is room for elements of 8 bytes and for offsets.
INPUT_WORDS = 1024 + 16
BLOCKS = (
    (1,), (5,), (31,), (32,), (33,), (64,), (70,), (96,), (8, 4), (16, 3), (3, 5, 2), (7, 13),
    (32, 3), (16, 4, 2),
)  # fmt: skip
GRIDS = ((1,), (2,), (3,), (2, 2), (1, 1, 3))


@dataclass(frozen=True)
class Program:
    """A kernel `test(input, scratch, longs, singles, doubles, halves, counters)` and its launch."""

    text: str
    grid: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def threads(self) -> int:
        return math.prod((*self.grid, *self.block))

    def changed(self, right: str, wrong: str) -> Program:
        return replace(self, text=self.text.replace(right, wrong))

    def _repr_pretty_(self, printer, cycle) -> None:
        """Hypothesis prints a program as its text."""
        printer.text(f"grid {self.grid} block {self.block}\n{self.text}")


# The common part of kernels and functions: the thread's number and the places of its memory.
_COMMON = """\
    .reg .u32 %tid_x, %linear, %count, %index, %t, %u, %base, %slot, %own, %r_spare, %r_other;
    .reg .u32 %named, %counted;
    .reg .u64 %rd_input, %rd_scratch, %rd_local, %rd_counters, %address;
    .reg .u64 %rd_generic_local, %rd_generic_own, %rd_given, %rd_given_local, %rd_end, %wrap;
    .reg .b16 %h_spare;
    .reg .b32 %m_tile;
    .reg .pred %more;
    .local .align 8 .b8 words[16];

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
    mov.u32 %index, %ctaid.z;
    mov.u32 %t, %nctaid.y;
    mov.u32 %base, %ctaid.y;
    mad.lo.u32 %index, %index, %t, %base;
    mov.u32 %t, %nctaid.x;
    mov.u32 %base, %ctaid.x;
    mad.lo.u32 %index, %index, %t, %base;
    mad.lo.u32 %index, %index, %count, %linear;
    mov.u32 %base, exchange;
    mad.lo.u32 %slot, %linear, 4, %base;
    mov.u32 %own, owned;
    mad.lo.u32 %own, %linear, 16, %own;
    cvt.u64.u32 %rd_generic_own, %own;
    cvta.shared.u64 %rd_generic_own, %rd_generic_own;
    mov.u64 %rd_end, 512;
    mov.u64 %rd_local, words;
    cvta.local.u64 %rd_generic_local, %rd_local;
    st.local.u32 [words], 1;
    st.local.u32 [words+4], %index;
    st.local.u64 [words+8], 3;
    mov.u32 %r_spare, 0;
    mov.u32 %r_other, 0;
"""

_TOP = """\
.version 8.2
.target sm_80
.address_size 64

.shared .align 4 .b8 exchange[512];
.shared .align 16 .b8 owned[2048];

"""

_ENTRY = """\
.visible .entry test(
    .param .u64 input,
    .param .u64 scratch,
    .param .u64 longs,
    .param .u64 singles,
    .param .u64 doubles,
    .param .u64 halves,
    .param .u64 counters
)
"""

_KERNEL = """\
    .shared .u32 total;
    mov.u64 %rd_given, %rd_generic_local;
    mov.u64 %rd_given_local, %rd_local;
    st.shared.u32 [%slot], %index;
    st.shared.v2.u64 [%own], {5, 0x8000000080000000};
    st.shared.u32 [total], 0;
    ld.param.u64 %rd_input, [input];
    ld.param.u64 %rd_scratch, [scratch];
    mad.wide.u32 %rd_scratch, %index, 64, %rd_scratch;
    ld.param.u64 %rd_counters, [counters];
    mad.wide.u32 %address, %index, 4, %rd_input;
"""


def _prologue(writer: Writer) -> None:
    """Give every register a value from the input, so that no lowering can know it."""
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
    for index in range(POOLS["E"][1]):
        writer.emit(f"ld.global.b16 %e{index}, [%address+{4 * index + 1026}]")
    for index in range(POOLS["G"][1]):
        writer.emit(f"ld.global.b32 %g{index}, [%address+{4 * index + 8}]")
    for index in range(PREDICATES):
        writer.emit(f"setp.lt.s32 %p{index}, %r{index}, %r{index + 1}")


def _epilogue(writer: Writer) -> None:
    """Store every register. A loop may jump behind this code, so it is one block."""
    words = [f"%r{i}" for i in range(POOLS["R"][1])] + ["%r_spare", "%r_other"]
    for index in range(POOLS["H"][1]):
        writer.emit(f"cvt.u32.u16 %t, %h{index}")
        writer.emit(f"st.global.u32 [%rd_scratch+{4 * (SCRATCH_WORDS + len(words))}], %t")
        words.append("")
    bits = SCRATCH_WORDS + len(words)
    writer.emit("mov.b32 %t, 0")
    for index in range(PREDICATES):
        writer.emit(f"@%p{index} or.b32 %t, %t, {1 << index}")
    writer.emit(f"st.global.u32 [%rd_scratch+{4 * bits}], %t")
    for index, register in enumerate(words):
        if register:
            writer.emit(f"st.global.u32 [%rd_scratch+{4 * (SCRATCH_WORDS + index)}], {register}")
    for name, letters in (("longs", "L"), ("singles", "F"), ("doubles", "D"), ("halves", "GE")):
        row = RESULT_BYTES[name]
        writer.emit(f"ld.param.u64 %address, [{name}]")
        writer.emit(f"mad.wide.u32 %address, %index, {row}, %address")
        offset = 0
        for letter in letters:
            type_, count = POOLS[letter]
            size = int(type_[1:]) // 8
            kind = "b16" if type_ == "f16" else type_
            for index in range(count):
                register = f"%{letter.lower()}{index}"
                writer.emit(f"st.global.{kind} [%address+{offset}], {register}")
                offset += size
    writer.emit("ret")


# Bytes per thread of each result; one element more than a thread writes.
RESULT_BYTES = {"longs": 32, "singles": 20, "doubles": 32, "halves": 16}


def assembled(kernel: Writer, functions: list[Writer]) -> str:
    """The text of the module."""
    parts = [_TOP]
    for each in functions:
        own = [".reg .u32 %depth", ".reg .pred %deeper"]
        lines = [f"    {line};" for line in (*each.declarations(), *own)]
        signature = device_functions.SIGNATURE.replace("NAME", each.function)
        parts += [
            f".func {signature}\n{{\n",
            "\n".join(lines),
            "\n",
            _COMMON,
            device_functions.PROLOGUE,
        ]
        parts += ["\n".join(each.lines), "\n}\n\n"]
    lines = [f"    {line};" for line in kernel.declarations()]
    parts += [_ENTRY, "{\n", "\n".join(lines), "\n", _COMMON, _KERNEL]
    parts += ["\n".join(kernel.lines), "\n}\n"]
    return "".join(parts)


def write(choices: Choices, size: int) -> Program:
    """Write a program with its launch; `size` is the nesting depth."""
    block, grid = choices.pick(BLOCKS), choices.pick(GRIDS)
    functions: list[Writer] = []
    for number in range(max(0, choices.number(-3, 2))):
        names = tuple(each.function for each in functions)
        function = Writer(choices, function=f"f{number}", functions=names)
        function.statements(max(0, size - 2), is_uniform=False)
        device_functions.give_back(function)
        functions.append(function)
    ends_threads = choices.number(0, 4) == 0
    writer = Writer(
        choices,
        threads=math.prod(block),
        ends_threads=ends_threads,
        functions=tuple(each.function for each in functions),
    )
    _prologue(writer)
    # Some threads may end before everything else; barriers go on without them.
    if ends_threads and choices.number(0, 1):
        writer.emit(f"setp.eq.u32 %more, %tid_x, {choices.number(0, 3)}")
        writer.emit("@%more exit")
    writer.emit("bar.sync 0")
    if writer.has_whole_warps and choices.number(0, 3):
        writer.members = "0xFFFFFFFF"
    elif not ends_threads:
        # The last warp may have fewer lanes.
        writer.members = writer.mask()
        writer.emit("mov.pred %more, 1")
        writer.emit(f"vote.sync.ballot.b32 {writer.members}, %more, 0xFFFFFFFF")
    writer.statements(size, is_uniform=True)
    writer.statements(max(0, size - 1), is_uniform=True)
    _epilogue(writer)
    return Program(assembled(writer, functions), grid, block)


@st.composite
def programs(draw, size: int = 3) -> Program:
    """Any program."""
    return write(Drawn(draw), size)


def program_of(seed: int, size: int = 3) -> Program:
    """The program of this seed."""
    return write(Seeded(seed), size)


def straight(templates: list[list[str]], seed: int) -> Program:
    """A program of these instructions in this order, without guards."""
    writer = Writer(Seeded(seed), threads=96)
    _prologue(writer)
    for template in templates:
        writer.instruction(template)
    _epilogue(writer)
    return Program(assembled(writer, []), (1,), (96,))
