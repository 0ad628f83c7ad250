"""Whatever the text, `parse` gives a module or PtxError; and a module can be analysed."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from cudasync.errors import PtxError
from cudasync.ptx import parse
from cudasync.ptx.access import analyse
from cudasync.ptx.cfg import ControlFlow
from cudasync.ptx.liveness import liveness

TEXT = (Path(__file__).parent / "corpus" / "sm_75.ptx").read_text()
HEAD = TEXT[: TEXT.index(".visible .entry saxpy")]
# One function each, so that a mutated text is short; each alone needs only the head.
BODIES = [".visible .entry " + each for each in TEXT.split(".visible .entry ")[1:]]
SHORT = [HEAD + body for body in BODIES if len(body) < 3000]

PIECES = [
    *"{}()[],;:@!|+-=<>_\"'#\\\n\0",
    "/*", "//", "0", "-1", "99999999999999999999999", "0x", "0f3F800000", "1e999", "1_0", "%r1",
    "%rd1", "%p1", "%tid.x", "saxpy_param_0", "ret;", "bra", "call", "brx.idx", "mov.b64", "ld",
    "st.global.v4.f32", ".reg .b32 %z<9>;", ".param .b64 q;", ".loc 1 2 3", ".v2", ".branchtargets",
    ".align", "$L__BB0_2", "{ .reg .b32 %r1;", "}", ".global .u32 g[2][2] = {{1},{2}};", "\u00e9",
]  # fmt: skip


def handled(text):
    """Everything that reads PTX, on `text`."""
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
