"""Which operands' addresses survive in the result of an instruction: random programs, computed.

A program of a few instructions gets one address and some numbers. If its result is an address of
the same 16 MiB, the analysis must have found the parameter. Python computes the results here; the
software GPU agrees with each instruction's meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from helpers.fuzzing.search import first_difference
from helpers.ptx_generators.kernel_frame import kernel
from hypothesis import given
from hypothesis import strategies as st

import cudasync as cs
from cudasync.ptx import parse
from cudasync.ptx.access_analysis import pointer_arithmetic
from cudasync.ptx.access_analysis.accesses import analyse

WORD, HALF = (1 << 64) - 1, (1 << 32) - 1
# One address is like another if these bits are equal: no number here is as large.
FAR = 24


def signed(value, bits=64):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def permuted(a, b, select):
    taken = (b & HALF) << 32 | a & HALF
    return sum((taken >> 8 * (select >> 4 * at & 7) & 0xFF) << 8 * at for at in range(4))


def taken(a, start, count):
    start, count = start & 0xFF, count & 0xFF
    return 0 if start > 63 else a >> start & (1 << count) - 1


def put(a, b, start, count):
    start, count = start & 0xFF, count & 0xFF
    mask = (((1 << count) - 1) << start) & WORD
    return b & ~mask | a << start & mask


def looked_up(a, b, c, table=0xD8):
    bits = [(a >> at & 1) << 2 | (b >> at & 1) << 1 | c >> at & 1 for at in range(32)]
    return sum((table >> each & 1) << at for at, each in enumerate(bits))


def mirrored(a):
    return int(f"{a:064b}"[::-1], 2)


def dot(a, b):
    return sum((a >> 8 * at & 0xFF) * (b >> 8 * at & 0xFF) for at in range(4))


def extended(a, count):
    count = min(count & HALF, 32)
    return signed(a, count) & HALF if count else 0


@dataclass(frozen=True)
class Form:
    """An instruction: `{0}` is its result, `{1}` and later its operands. A register letter for
    each; its meaning; and the operands that are factors or divisors."""

    text: str
    registers: str
    meaning: object
    factors: tuple = ()


FORMS = [
    Form("mov.b64 {0}, {1};", "dd", lambda a: a),
    Form("add.u64 {0}, {1}, {2};", "ddd", lambda a, b: a + b),
    Form("sub.u64 {0}, {1}, {2};", "ddd", lambda a, b: a - b),
    Form("mul.lo.u64 {0}, {1}, {2};", "ddd", lambda a, b: a * b, (0, 1)),
    Form("mul.wide.u32 {0}, {1}, {2};", "drr", lambda a, b: a * b, (0, 1)),
    Form("mul24.lo.u32 {0}, {1}, {2};", "rrr",
         lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF), (0, 1)),
    Form("mad.lo.u64 {0}, {1}, {2}, {3};", "dddd", lambda a, b, c: a * b + c, (0, 1)),
    Form("mad.wide.u32 {0}, {1}, {2}, {3};", "drrd", lambda a, b, c: a * b + c, (0, 1)),
    Form("mad24.lo.u32 {0}, {1}, {2}, {3};", "rrrr",
         lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c, (0, 1)),
    Form("sad.u64 {0}, {1}, {2}, {3};", "dddd", lambda a, b, c: abs(a - b) + c),
    Form("sad.s64 {0}, {1}, {2}, {3};", "dddd",
         lambda a, b, c: abs(signed(a) - signed(b)) + c),
    Form("sad.u32 {0}, {1}, {2}, {3};", "rrrr", lambda a, b, c: abs(a - b) + c),
    Form("div.u64 {0}, {1}, {2};", "ddd", lambda a, b: a // b if b else 0, (1,)),
    Form("rem.u64 {0}, {1}, {2};", "ddd", lambda a, b: a % b if b else 0, (1,)),
    Form("min.u64 {0}, {1}, {2};", "ddd", min),
    Form("max.u64 {0}, {1}, {2};", "ddd", max),
    Form("abs.s64 {0}, {1};", "dd", lambda a: abs(signed(a))),
    Form("neg.s64 {0}, {1};", "dd", lambda a: -a),
    Form("not.b64 {0}, {1};", "dd", lambda a: ~a),
    Form("cnot.b64 {0}, {1};", "dd", lambda a: int(not a)),
    Form("and.b64 {0}, {1}, {2};", "ddd", lambda a, b: a & b),
    Form("or.b64 {0}, {1}, {2};", "ddd", lambda a, b: a | b),
    Form("xor.b64 {0}, {1}, {2};", "ddd", lambda a, b: a ^ b),
    Form("lop3.b32 {0}, {1}, {2}, {3}, 0xD8;", "rrrr", looked_up),
    Form("shl.b64 {0}, {1}, {2};", "ddr", lambda a, by: a << by if by < 64 else 0),
    Form("shr.u64 {0}, {1}, {2};", "ddr", lambda a, by: a >> by if by < 64 else 0),
    Form("shf.l.wrap.b32 {0}, {1}, {2}, {3};", "rrrr",
         lambda a, b, by: ((b << 32 | a) << (by & 31)) >> 32),
    Form("bfe.u64 {0}, {1}, {2}, {3};", "ddrr", taken),
    Form("bfi.b64 {0}, {1}, {2}, {3}, {4};", "dddrr", put),
    Form("brev.b64 {0}, {1};", "dd", mirrored),
    Form("popc.b64 {0}, {1};", "rd", lambda a: a.bit_count()),
    Form("clz.b64 {0}, {1};", "rd", lambda a: 64 - a.bit_length()),
    Form("bfind.u64 {0}, {1};", "rd", lambda a: a.bit_length() - 1),
    Form("szext.wrap.u32 {0}, {1}, 31;", "rr", lambda a: a & (1 << 31) - 1),
    Form("prmt.b32 {0}, {1}, {2}, 0x5410;", "rrr", lambda a, b: permuted(a, b, 0x5410)),
    Form("prmt.b32 {0}, {1}, {2}, 0x7632;", "rrr", lambda a, b: permuted(a, b, 0x7632)),
    Form("dp4a.u32.u32 {0}, {1}, {2}, {3};", "rrrr", lambda a, b, c: dot(a, b) + c, (0, 1)),
    Form("slct.b64.s32 {0}, {1}, {2}, {3};", "dddr",
         lambda a, b, c: a if signed(c, 32) >= 0 else b),
    Form("cvt.u64.u32 {0}, {1};", "dr", lambda a: a),
    Form("cvt.u32.u64 {0}, {1};", "rd", lambda a: a),
    Form("mov.b64 {0}, {{{1}, {2}}};", "drr", lambda a, b: b << 32 | a),
    Form("mov.b64 {{{0}, _}}, {1};", "rd", lambda a: a),
    Form("mov.b64 {{_, {0}}}, {1};", "rd", lambda a: a >> 32),
    Form("neg.f64 {0}, {1};", "dd", lambda a: a ^ 1 << 63),
    Form("abs.f64 {0}, {1};", "dd", lambda a: a & WORD >> 1),
]  # fmt: skip
# Numbers of each kind that some instruction gives a sense: shifts, masks, places, small offsets.
NUMBERS = (0, 1, 2, 3, 4, 8, 16, 24, 31, 32, 40, 48, 64, HALF, WORD, 0xFFFF)
# Not 1, -1 and powers of two, which would multiply by nothing or shift. See `SURVIVORS`.
FACTORS = (3, 5, 7, 12, 100, 0)
DOUBLES, WORDS = 4, 4
PRIMES = {"d": DOUBLES, "r": WORDS}


def instruction(form):
    registers = [st.integers(0, PRIMES[letter] - 1) for letter in form.registers]
    operands = [
        st.sampled_from(FACTORS) if at in form.factors else st.one_of(register, constants)
        for at, register in enumerate(registers[1:])
    ]
    return st.tuples(st.just(FORMS.index(form)), registers[0], st.tuples(*operands))


constants = st.sampled_from(NUMBERS).map(lambda number: ("number", number))
programs = st.lists(st.one_of([instruction(form) for form in FORMS]), min_size=1, max_size=5)


def value_of(operand, letter, registers):
    if isinstance(operand, tuple):
        return operand[1] & (WORD if letter == "d" else HALF)
    return registers[letter][operand]


def computed(program, address):
    """The result of the program: its last 64-bit result."""
    registers = {
        "d": [address, 8, address + 64, 0],
        "r": [address & HALF, address >> 32, 4, 0],
    }
    last = 0
    for index, target, operands in program:
        form = FORMS[index]
        letter, *letters = form.registers
        values = [
            each if at in form.factors else value_of(each, kind, registers)
            for at, (each, kind) in enumerate(zip(operands, letters, strict=True))
        ]
        mask = WORD if letter == "d" else HALF
        registers[letter][target] = form.meaning(*values) & mask
        if letter == "d":
            last = target
    return registers["d"][last], last


def lines_of(program):
    """The PTX of a program, whose operands in constants have registers of their own."""
    for index, target, operands in program:
        form = FORMS[index]
        letter, *letters = form.registers
        names = []
        for at, (each, kind) in enumerate(zip(operands, letters, strict=True)):
            if at in form.factors or isinstance(each, tuple):
                number = each if at in form.factors else each[1]
                mask = WORD if kind == "d" else HALF
                names.append(f"%{kind}{4 + at}")
                yield f"mov.b{64 if kind == 'd' else 32} %{kind}{4 + at}, {number & mask:#x};"
            else:
                names.append(f"%{kind}{each}")
        yield form.text.format(f"%{letter}{target}", *names)


def text_of(body):
    # Some of the instructions are younger than the frame's version.
    return kernel(body, parameters=".param .u64 p, .param .u64 q").replace(
        ".version 6.4", ".version 7.8"
    )


BEGIN = """ld.param.u64 %d0, [p]; mov.u64 %d1, 8; add.u64 %d2, %d0, 64; mov.u64 %d3, 0;
mov.b64 {%r0, %r1}, %d0; mov.u32 %r2, 4; mov.u32 %r3, 0;
"""


def excesses(program, seed):
    """The program, if its result is an address of which the analysis does not know."""
    random = Random(seed)
    address = random.randrange(1 << 46, 1 << 47) >> FAR << FAR | random.randrange(1 << 12) << 8
    result, last = computed(program, address)
    if result >> FAR != address >> FAR:
        return []
    # An address of no origin may be anything: the other parameter hides that.
    end = f"ld.param.u64 %d8, [q]; selp.b64 %d8, %d8, %d{last}, %p1; st.global.u8 [%d8], 1; ret;"
    body = "\n".join([BEGIN, *lines_of(program), end])
    inferred = analyse(parse(text_of(body)), "k")
    return [] if inferred.parameters[0].writes else [program]


seeds = st.integers(0, 9)


@given(programs, seeds)
def test_an_address_that_survives_is_found(program, seed):
    assert not excesses(program, seed)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.text.split()[0])
@given(st.data(), seeds)
def test_an_instruction_alone_is_found(form, data, seed):
    """Each instruction, once or twice: other programs have few of one kind."""
    program = data.draw(st.lists(instruction(form), min_size=1, max_size=2))
    assert not excesses(program, seed)


@pytest.mark.parametrize("bug", ["sad", "brev", "mad", "min"])
def test_a_planted_bug_is_found(bug, monkeypatch):
    monkeypatch.setitem(pointer_arithmetic.SURVIVORS, bug, ())
    helpful = [form for form in FORMS if form.text.startswith((bug, "mov.b64"))]
    steps = st.lists(st.one_of(list(map(instruction, helpful))), min_size=1, max_size=4)
    assert first_difference(excesses, steps, seeds)


def test_the_software_gpu_agrees_with_every_meaning():
    random = Random(1)
    lines, expected = [], []
    for index, form in enumerate(FORMS):
        for _ in range(3):
            operands = tuple(
                random.choice(FACTORS[:-1])
                if at in form.factors
                else ("number", random.choice([*NUMBERS, random.randrange(1 << 64)]))
                for at in range(len(form.registers) - 1)
            )
            program = [(index, 0, operands)]
            letter = form.registers[0]
            width = 64 if letter == "d" else 32
            store = f"st.global.b{width} [%d8+{8 * len(expected)}], %{letter}0;"
            lines += [*lines_of(program), store]
            values = [each if isinstance(each, int) else each[1] for each in operands]
            masks = [WORD if kind == "d" else HALF for kind in form.registers[1:]]
            result = form.meaning(*(v & m for v, m in zip(values, masks, strict=True)))
            expected.append(result & (WORD if letter == "d" else HALF))
    text = text_of("ld.param.u64 %d8, [p];\n" + "\n".join(lines) + "\nret;")
    out = cs.zeros(len(expected), np.uint64)
    cs.Module.from_ptx(text).kernel("k")[1, 1](out, 0)
    assert [hex(each) for each in out.numpy().tolist()] == [hex(each) for each in expected]
