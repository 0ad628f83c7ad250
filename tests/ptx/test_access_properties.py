"""The analysis never infers too little: random programs, executed beside it.

A program moves pointers through registers, memory, halves and calls. The interpreter here knows the
origin of every value. It follows the program twice around its loop, and notes the real accesses.
The analysis must have inferred each of them. Every register and every place in memory begins with a
pointer: an address from nowhere would make all of them unknown, and hide other errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from helpers.ptx_generators.kernel_frame import kernel
from hypothesis import example, given
from hypothesis import strategies as st

from cudasync.ptx import parse
from cudasync.ptx.access_analysis.accesses import analyse
from cudasync.ptx.types import Access

# The given pointers: parameters, then the words of a struct.
PARAMETERS = 3
WORDS = 2
REGISTERS = 4
SLOTS = 2
ROUNDS = 2

IDENTITY = """.func (.param .b64 y) same(.param .b64 x)
{ .reg .b64 %d; ld.param.b64 %d, [x]; st.param.b64 [y], %d; ret; }"""

register = st.integers(0, REGISTERS - 1)
slot = st.integers(0, SLOTS - 1)
steps = st.one_of(
    st.tuples(st.just("param"), register, st.integers(0, PARAMETERS - 1)),
    st.tuples(st.just("word"), register, st.integers(0, WORDS - 1)),
    st.tuples(
        st.sampled_from(["mov", "add", "halves", "shift", "cut", "parts", "call"]),
        register,
        register,
    ),
    st.tuples(st.sampled_from(["index", "high index"]), register, register, register),
    st.tuples(st.just("select"), register, register, register, st.booleans()),
    st.tuples(st.sampled_from(["spill", "share"]), slot, register),
    st.tuples(st.sampled_from(["reload", "unshare"]), register, slot),
    st.tuples(st.sampled_from(["read", "write", "add to"]), register),
    st.tuples(st.just("follow"), register, register),
    st.tuples(st.just("keep"), register, register),
)

TEXTS = {
    "param": "ld.param.u64 %d{0}, [p{1}];",
    "word": "ld.param.u64 %d{0}, [s+{1}*8];",
    "cut": "and.b64 %d5, %d{1}, 0xFFFFFFFF; shr.u64 %d6, %d{1}, 32; shl.b64 %d6, %d6, 32;"
    " or.b64 %d{0}, %d5, %d6;",
    "parts": "mov.b64 {{%r1, %r2}}, %d{1}; st.local.b32 [part], %r1; st.local.b32 [part+4], %r2;"
    " ld.local.b64 %d{0}, [part];",
    "index": "ld.global.u64 %d5, [%d{2}]; shl.b64 %d5, %d5, 32; shr.s64 %d5, %d5, 30;"
    " add.s64 %d{0}, %d{1}, %d5;",
    "high index": "ld.global.u32 %r1, [%d{2}]; shl.b32 %r1, %r1, 24; cvt.s64.s32 %d5, %r1;"
    " add.s64 %d{0}, %d{1}, %d5;",
    "mov": "mov.b64 %d{0}, %d{1};",
    "add": "add.s64 %d{0}, %d{1}, 8;",
    "halves": "mov.b64 {{%r1, %r2}}, %d{1}; mov.b64 %d{0}, {{%r1, %r2}};",
    "shift": "shl.b64 %d{0}, %d{1}, 16; shr.u64 %d{0}, %d{0}, 16;",
    "select": "selp.b64 %d{0}, %d{1}, %d{2}, %p1;",
    "spill": "st.local.b64 [box+{0}*8], %d{1};",
    "reload": "ld.local.b64 %d{0}, [box+{1}*8];",
    "share": "st.shared.b64 [crate+{0}*8], %d{1};",
    "unshare": "ld.shared.b64 %d{0}, [crate+{1}*8];",
    "read": "ld.global.b32 %r3, [%d{0}];",
    "write": "st.global.b32 [%d{0}], 1;",
    "add to": "atom.global.add.u32 %r3, [%d{0}], 1;",
    "follow": "ld.global.b64 %d{0}, [%d{1}];",
    "keep": "st.global.b64 [%d{0}], %d{1};",
    "call": "{{ .param .b64 a; .param .b64 r; st.param.b64 [a], %d{1};"
    " call (r), same, (a); ld.param.b64 %d{0}, [r]; }}",
}


@dataclass
class Run:
    """The real accesses. A value is (parameter, number of loads that led to it), or None for no
    pointer."""

    registers: list = field(default_factory=lambda: [None] * REGISTERS)
    local: list = field(default_factory=lambda: [None] * SLOTS)
    shared: list = field(default_factory=lambda: [None] * SLOTS)
    # The values that the kernel stored through each pointer. Other memory holds the host's
    # pointers.
    memory: dict = field(default_factory=dict)
    read: set = field(default_factory=set)
    written: set = field(default_factory=set)

    def step(self, name, *operands):
        registers = self.registers
        match name, operands:
            case "param", (target, parameter):
                registers[target] = (parameter, 0)
            case "word", (target, word):
                registers[target] = (PARAMETERS + word, 0)
            case (
                ("mov" | "add" | "halves" | "shift" | "cut" | "parts" | "call"),
                (target, source),
            ):
                registers[target] = registers[source]
            case (("index" | "high index"), (target, base, source)):
                self.access("read", source)
                registers[target] = registers[base]
            case "select", (target, one, other, choice):
                registers[target] = registers[one if choice else other]
            case "spill", (place, source):
                self.local[place] = registers[source]
            case "share", (place, source):
                self.shared[place] = registers[source]
            case "reload", (target, place):
                registers[target] = self.local[place]
            case "unshare", (target, place):
                registers[target] = self.shared[place]
            case _:
                self.access(name, *operands)

    def access(self, name, *operands):
        address = self.registers[operands[1] if name == "follow" else operands[0]]
        if address is None:
            return
        if name in ("read", "add to", "follow"):
            self.read.add(address)
        if name in ("write", "add to", "keep"):
            self.written.add(address)
        if name == "follow":
            parameter, depth = address
            self.registers[operands[0]] = self.memory.get(address, (parameter, depth + 1))
        if name == "keep":
            self.memory[address] = self.registers[operands[1]]


BEGIN = [
    *(("param", index, index % PARAMETERS) for index in range(REGISTERS)),
    *((name, index, 0) for name in ("spill", "share") for index in range(SLOTS)),
]


def compiled(program):
    begin = "\n".join(TEXTS[name].format(*operands) for name, *operands in BEGIN)
    lines = [TEXTS[name].format(*operands) for name, *operands in program]
    body = ".local .b64 box[2], part; .shared .b64 crate[2]; " + begin + " top: " + "\n".join(lines)
    parameters = ", ".join(f".param .u64 p{index}" for index in range(PARAMETERS))
    parameters += f", .param .align 8 .b8 s[{8 * WORDS}]"
    text = kernel(f"{body}\n@%p2 bra top; ret;", parameters=parameters, before=IDENTITY)
    return analyse(parse(text), "k")


@given(st.lists(steps, max_size=16))
# Copied by way of another parameter's memory: too long to be found at random.
@example([("follow", 3, 1), ("keep", 0, 3), ("follow", 2, 0), ("read", 2)])
@example([("shift", 3, 0), ("select", 2, 3, 1, True), ("write", 2)])
@example([("call", 3, 0), ("select", 2, 3, 1, True), ("write", 2)])
def test_what_really_happens_was_admitted(program):
    run = Run()
    for step in BEGIN:
        run.step(*step)
    for _ in range(ROUNDS):
        for step in program:
            run.step(*step)
    inferred = compiled(program)
    words = {each.offset: each.access for each in inferred.fields[PARAMETERS]}
    found = [
        *inferred.parameters[:PARAMETERS],
        *(words.get(8 * word, Access.VALUE) for word in range(WORDS)),
    ]
    for parameter, _ in run.read:
        assert found[parameter].reads
    for parameter, _ in run.written:
        assert found[parameter].writes
    for parameter, depth in run.read | run.written:
        assert depth == 0 or (found[parameter] is Access.UNKNOWN and inferred.beyond)


TOUCHING = ("read", "write", "add to", "follow", "keep", "index", "high index")


@given(st.lists(steps, max_size=16))
def test_a_program_that_never_touches_memory_has_values_only(program):
    quiet = [step for step in program if step[0] not in TOUCHING]
    inferred = compiled(quiet)
    assert set(inferred.parameters) == {Access.VALUE}
    assert not inferred.beyond
