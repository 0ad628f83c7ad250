"""For every text, `parse` gives a module or a PtxError, and every module can be analysed."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from cudasync.errors import PtxError
from cudasync.ptx import parse
from cudasync.ptx.access_analysis.accesses import analyse
from cudasync.ptx.cfg import ControlFlow
from cudasync.ptx.liveness import liveness

TEXT = (Path(__file__).parent / "corpus" / "sm_75.ptx").read_text()
HEAD = TEXT[: TEXT.index(".visible .entry saxpy")]
# One function each, so that a mutated text is short. Each function needs only the head.
BODIES = [".visible .entry " + each for each in TEXT.split(".visible .entry ")[1:]]
SHORT = [HEAD + body for body in BODIES if len(body) < 3000]

PIECES = [
    *"{}()[],;:@!|+-=<>_\"'#\\\n\0",
    "1<<", "?", "~",
    "/*", "//", "0", "-1", "99999999999999999999999", "0x", "0f3F800000", "1e999", "1_0", "%r1",
    "%rd1", "%p1", "%tid.x", "saxpy_param_0", "ret;", "bra", "call", "brx.idx", "mov.b64", "ld",
    "st.global.v4.f32", ".reg .b32 %z<9>;", ".param .b64 q;", ".loc 1 2 3", ".v2", ".branchtargets",
    ".align", "$L__BB0_2", "{ .reg .b32 %r1;", "}", ".global .u32 g[2][2] = {{1},{2}};", "\u00e9",
]  # fmt: skip


# A type in an instruction, and the instruction's opcode.
TYPED = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z]\w*)(?:\.\w+)*?\.(?:pred|b?f16(?:x2)?|[busf]\d+)\b")
TYPE = re.compile(r"\.(?:pred|b?f16(?:x2)?|[busf](?:8|16|32|64|128))\b")

# A text with a little of everything, which the test cuts behind each word.
SAMPLER = """
.version 6.4 .target sm_75, debug .address_size 64
.file 1 "a.cu", 1, 2 .section .debug_info { .b8 1 } .pragma "x";
.extern .func (.param .b32 r) f (.param .align 8 .b8 a[16]) .noreturn;
.visible .global .align 8 .v2 .f32 g[2][2] = {{1.0, -2}, {0f3F800000}};
.const .u64 c = generic(g)+4;
.entry k(.param .u64 .ptr .global .align 16 x) .maxntid 1, 2 .pragma "y"; {
.reg .pred %p; .reg .v2 .b32 %v; .reg .b32 %r<9>; .local .b8 l[4];
.loc 1 2 3, function_name n+4, inlined_at 1 2 3
t: .branchtargets a, b; u: .callprototype (.param .b32 _) _ (.param .b64 _) .noreturn;
a: @!%p add .s32 %r1, %r2, 0x1F; b: ld.global.v2.b32 {%r1, _}, [g+-4]; mov.b32 %v.x, g+4;
shfl.sync.idx.b32 %r1|%p, %r2, !%p, 1, WARP_SZ; brx.idx %r1, t; @%p bra a;
{ .param .b64 q; call (%r1), f, (q, 3), u; } tex.1d.v2.f32.s32 %v, [g, {%r1}]; ret; }
.func h { ret; } .weak .func i; .alias i, h;
"""


def handled(text):
    """Run everything that reads PTX on `text`."""
    try:
        module = parse(text, "fuzz.ptx")
    except PtxError:
        return
    for function in module.functions:
        flow = ControlFlow(function)
        assert len(flow.post_dominators) == len(flow.blocks)
        found = liveness(flow)
        if flow.blocks:
            found.live_in(0)
    for kernel in module.kernels:
        assert len(analyse(module, kernel.name).parameters) == len(kernel.parameters)


@given(st.text(max_size=200))
@example(".version 6.4 .target sm_75 .section")
@example('.version 6.4 .target sm_75 .file 1 "')
def test_any_text_is_handled(text):
    handled(text)


@given(st.binary(max_size=100))
def test_any_bytes_are_handled(data):
    handled(data)


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_any_words_in_a_body_are_handled(pieces):
    text = HEAD + ".entry k(.param .u64 saxpy_param_0) { .reg .b32 %r<4>; .reg .b64 %rd<4>; "
    handled(text + ".reg .pred %p<3>; " + " ".join(pieces) + " ret; }")


@given(st.sampled_from(SHORT), st.data())
def test_a_text_that_was_cut_is_handled(text, data):
    handled(text[: data.draw(st.integers(len(HEAD) // 2, len(text)))])


@given(st.sampled_from(SHORT), st.data())
def test_a_text_with_pieces_replaced_is_handled(text, data):
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(len(HEAD), len(text)))
        length = data.draw(st.integers(0, 12))
        text = text[:start] + data.draw(st.sampled_from(PIECES)) + text[start + length :]
    handled(text)


@given(st.sampled_from(SHORT), st.data())
def test_a_text_with_words_exchanged_is_handled(text, data):
    words = text[len(HEAD) :].split(" ")
    for _ in range(data.draw(st.integers(1, 4))):
        one = data.draw(st.integers(0, len(words) - 1))
        other = data.draw(st.integers(0, len(words) - 1))
        words[one], words[other] = words[other], words[one]
    handled(HEAD + " ".join(words))


def test_a_text_cut_behind_any_word_is_handled():
    for end, mark in enumerate(SAMPLER):
        if not mark.isalnum():
            handled(SAMPLER[:end])


def test_an_instruction_without_its_types_is_handled():
    """A newer PTX may have unknown types."""
    tried = set()
    for path in sorted((Path(__file__).parents[2] / "ptx" / "isa").glob("*.ptx")):
        lines = path.read_text().splitlines()
        for place, line in enumerate(lines):
            typed = TYPED.match(line)
            if typed and typed.group(1) not in tried:
                tried.add(typed.group(1))
                handled("\n".join([*lines[:place], TYPE.sub("", line), *lines[place + 1 :]]))
    assert tried >= {"ld", "st", "shl", "shr", "bfi", "mov", "cvt", "atom"}


def test_a_text_of_nothing_but_open_comments_takes_no_time():
    handled("/*" * 200_000)
    handled('"' * 200_001)
    handled("{" * 200_000)
