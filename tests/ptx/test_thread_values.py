"""The values of registers in the threads of a block are those that a launch computes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.lowering import bare_launch
from hypothesis import example, given
from hypothesis import strategies as st

from cudasync.ptx import parse, thread_values
from cudasync.ptx.ir import Address, Register
from cudasync.ptx.thread_values import ThreadValues, Value
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.interface.launch import AllocationSnapshot, Launch, OutcomeKind
from cudasync.softgpu.jit import compile_module
from cudasync.softgpu.jit.transforms.webs import split_webs

BLOCK = (8, 3, 2)
THREADS = 48
SOURCES = ("%tid.x", "%tid.y", "%tid.z", "%laneid", "%ntid.x", "7", "-3", "4096")
TYPES = ("u32", "s32", "u16", "s16", "u64", "s64")
CHAINS = 6


def line_of(n, what, type_, pick):
    """An instruction that writes the registers of turn n, from earlier ones."""
    wide = int(type_[1:])
    a, b, c = (f"%r{wide}_{each}" for each in pick)
    to = f"%r{wide}_{n}"
    match what:
        case "mad.lo":
            return f"mad.lo.{type_} {to}, {a}, {b}, {c};"
        case "mul.wide" if wide < 64:
            return f"mul.wide.{type_} %r{2 * wide}_{n}, {a}, {b};"
        case "shl" | "shr":
            kind = f"b{wide}" if what == "shl" else type_
            return f"{what}.{kind} {to}, {a}, {pick[1]};"
        case "div" | "rem":
            return f"{what}.{type_} {to}, {a}, {pick[1] + 3};"
        case "and" | "or" | "xor":
            return f"{what}.b{wide} {to}, {a}, {b};"
        case "not":
            return f"not.b{wide} {to}, {a};"
        case "neg":
            return f"neg.s{wide} {to}, {a};"
        case "setp":
            compare = ("lt", "ge", "eq")[pick[2] % 3]
            return f"setp.{compare}.{type_} %p{n}, {a}, {b}; selp.b{wide} {to}, {b}, {a}, %p{n};"
        case "cvt":
            other = 16 if wide == 64 else 2 * wide
            return f"cvt.{type_[0]}{other}.{type_} %r{other}_{n}, {a};"
    return f"{what if what != 'mul.wide' else 'mul.lo'}.{type_} {to}, {a}, {b};"


OPERATIONS = (
    "add", "sub", "mul.lo", "mul.wide", "mad.lo", "shl", "shr", "div", "rem", "and", "or", "xor",
    "not", "neg", "min", "max", "setp", "cvt",
)  # fmt: skip


@st.composite
def programs(draw):
    sources = [draw(st.sampled_from(SOURCES)) for _ in range(3)]
    lines = []
    for n in range(3, 3 + draw(st.integers(1, CHAINS))):
        pick = [draw(st.integers(0, n - 1)) for _ in range(3)]
        lines.append((draw(st.sampled_from(OPERATIONS)), draw(st.sampled_from(TYPES)), pick))
    return sources, lines


def text_of(program):
    """The kernel stores its last value. Each turn has a register of each width; it computes one."""
    sources, lines = program
    body = []
    for n, source in enumerate(sources):
        body.append(f"mov.u32 %r32_{n}, {source};")
        body.append(f"cvt.s64.s32 %r64_{n}, %r32_{n}; cvt.u16.u32 %r16_{n}, %r32_{n};")
    for n, line in enumerate(lines, 3):
        text = line_of(n, *line)
        for wide in (16, 32, 64):
            if f" %r{wide}_{n}," not in text:
                text = f"mov.b{wide} %r{wide}_{n}, %r{wide}_{n - 1}; {text}"
        body.append(text)
    count = 3 + len(lines)
    return "\n".join(
        [
            ".version 7.0\n.target sm_75\n.address_size 64",
            ".visible .entry values(.param .u64 out) {",
            f".reg .b16 %r16_<{count}>; .reg .b32 %r32_<{count}>; .reg .b64 %r64_<{count}>;",
            f".reg .b64 %wide, %out, %to, %high; .reg .pred %p<{count}>, %is_low, %is_high;",
            ".reg .b32 %x, %y, %z, %at;",
            *body,
            "mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %z, %tid.z;",
            f"mad.lo.u32 %at, %z, {BLOCK[1]}, %y; mad.lo.u32 %at, %at, {BLOCK[0]}, %x;",
            "ld.param.u64 %out, [out]; mul.wide.u32 %wide, %at, 8; add.u64 %to, %out, %wide;",
            f"st.global.u64 [%to], %r64_{count - 1};",
            # Only values on which an address or a guard depends are looked for.
            f"shr.u64 %high, %r64_{count - 1}, 32; setp.ne.u64 %is_high, %high, 0;",
            f"setp.ne.u64 %is_low, %r64_{count - 1}, 0; @%is_low ret; @%is_high ret;",
            "ret; }",
        ]
    )


def found_of(text):
    """The value that is stored, as it is found in the text: lower and upper half by thread."""
    kernel = parse(text).functions[0]
    last = max(int(name[5:]) for name in kernel.registers if name.startswith("%r64_"))
    values = ThreadValues(kernel, BLOCK, {})
    halves = [
        values.address(Address(Register(name, ScalarType.B64)))
        for name in (f"%r64_{last}", "%high")
    ]
    assert None not in halves
    low, high = map(values.by_thread, halves)
    return [one | other << 32 for one, other in zip(low, high, strict=True)]


def stored_by(text):
    """The values that a launch stores."""
    kernel = compile_module(parse(text)).kernels["values"]
    out = np.zeros(THREADS, np.uint64)
    ranges = AllocationSnapshot([(out.ctypes.data, out.ctypes.data + out.nbytes)])
    launch = Launch((1, 1, 1), BLOCK, 0, bare_launch.pack(kernel, [out]), [], ranges)
    assert kernel.start(launch).run().kind is OutcomeKind.DONE
    return out.tolist()


# Each example compiles a kernel.
@given(programs())
@example((["-3", "%tid.x", "%tid.y"], [("shr", "s32", [0, 1, 1]), ("cvt", "s32", [3, 0, 0])]))
@example((["-3", "7", "%tid.y"], [("div", "s16", [0, 1, 1]), ("cvt", "s16", [3, 0, 0])]))
def test_values_are_those_of_a_launch(program):
    text = text_of(program)
    assert found_of(text) == stored_by(text)


SHIFTED = text_of((["-3", "%tid.x", "%tid.y"], [("shr", "s64", [0, 1, 1])]))


def test_a_wrong_rule_is_found_out(monkeypatch):
    """Planted: a shift that does not keep the sign."""
    assert found_of(SHIFTED) == stored_by(SHIFTED)
    monkeypatch.setattr(thread_values, "_signed", lambda number, bits: number & (1 << bits) - 1)
    assert found_of(SHIFTED) != stored_by(SHIFTED)


def value_of(*lines):
    """What the address `%a` is found to be."""
    head = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry f(.param .u32 n) {\n"
    head += ".reg .b32 %a, %b, %n, %t; .reg .b64 %w; .reg .pred %p; .reg .f32 %f;\n"
    head += "ld.param.u32 %n, [n]; mov.u32 %t, %tid.x;\n"
    text = "\n".join([head, *lines, "st.shared.f32 [%a+4], %f; ret; }"])
    kernel = split_webs(parse(text).functions[0])
    (store,) = (each for each in kernel.body if each.opcode == "st")
    return ThreadValues(kernel, (2, 1, 1), {}).address(store.operands[0])


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (["mad.lo.u32 %a, %t, 8, %n;"], Value((4, 12), (("n+0", 1),))),
        (["shl.b32 %b, %n, 2; sub.u32 %a, %t, %b;"], Value((4, 5), (("n+0", (1 << 32) - 4),))),
        (["sub.u32 %b, %t, %n; add.u32 %a, %b, %n;"], Value((4, 5))),
        (["mov.u32 %b, %ctaid.x; add.u32 %a, %b, %t;"], Value((4, 5), (("%ctaid.x", 1),))),
        # A product of two unknown numbers, a square, and what two paths write.
        (["mul.lo.u32 %a, %n, %t;"], None),
        (["mul.lo.u32 %a, %n, %n;"], None),
        (["mov.u32 %a, %t; setp.eq.u32 %p, %t, 0; @%p mov.u32 %a, 0;"], None),
        (["ld.shared.u32 %a, [%t];"], None),
        # The upper half of the sum is not known.
        (["cvt.u64.u32 %w, %n; sub.u64 %w, %w, %w; cvt.u32.u64 %a, %w;"], None),
    ],
)
def test_what_is_not_known_before_a_launch_is_a_symbol_or_nothing(lines, value):
    assert value_of(*lines) == value
