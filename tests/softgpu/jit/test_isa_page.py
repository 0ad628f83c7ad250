"""The page of PTX instructions says what the lowerings do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.ptx_generators.instruction_forms import forms

from cudasync.ptx import parse
from cudasync.ptx.opcodes import OPCODES
from cudasync.softgpu.jit.isa_page import COMMAND, PAGE, lowered, page, refused_forms, unknown
from cudasync.softgpu.semantics.unsupported_instructions import beyond

ROOT = Path(__file__).resolve().parents[3]

# Opcodes without a value: they lower to nothing, or end a kernel. No file of ptx/isa can expect
# one.
NO_VALUE = frozenset({"brkpt", "griddepcontrol", "pmevent", "setmaxnreg", "trap"})
# Opcodes that need a texture or surface object are tested elsewhere.
ELSEWHERE = {
    "suq": "textures/test_surfaces.py",
    "sured": "textures/test_surfaces.py",
    "tld4": "textures/test_fetches.py",
    "txq": "textures/test_fetches.py",
}


def test_the_page_is_what_the_lowerings_do():
    assert PAGE.read_text(encoding="utf-8") == page(), f"run: {COMMAND}"


def test_every_opcode_stands_somewhere_and_none_is_refused_whole_and_lowered():
    refused = {form.partition(".")[0] for form in refused_forms()}
    assert lowered() | refused | unknown() == OPCODES.keys()
    assert not lowered() & unknown()
    assert refused <= OPCODES.keys()


def _shown() -> set[str]:
    """The opcodes in ptx/isa and in the instruction forms of compilers, which other tests run."""
    found = {form.opcode for form in forms()}
    for path in (ROOT / "ptx" / "isa").glob("*.ptx"):
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        found |= set(re.findall(r"(?:^|[;}\s])\s*(?:@!?%\w+\s+)?([a-z]\w*)[.\s;]", text))
    return found


def test_what_is_said_to_be_lowered_is_run_by_a_test():
    for opcode, name in ELSEWHERE.items():
        assert opcode in (ROOT / "tests" / "softgpu" / name).read_text(encoding="utf-8")
    assert lowered() - NO_VALUE - ELSEWHERE.keys() <= _shown()
    assert not {"tcgen05", "wgmma", "mapa"} & _shown()


@pytest.mark.parametrize(
    ("statement", "form"),
    [
        ("mapa.shared::cluster.u32 %r0, %r1, 1;", "mapa"),
        ("cp.async.bulk.commit_group;", "cp.bulk"),
        ("cvt.rs.f16x2.f32 %r0, %f0, %f1, %r1;", "cvt.rs"),
        ("atom.global.exch.b128 %q0, [%rd0], %q1;", "atom.b128"),
        ("ld.shared::cluster.b32 %r0, [%r1];", "ld.shared::cluster"),
        ("alloca.u64 %rd0, %rd1, 16;", "alloca"),
    ],
)
def test_a_form_of_the_page_is_refused_for_what_the_page_says(statement, form):
    text = f""".version 8.6
    .target sm_100a
    .address_size 64
    .visible .entry k()
    {{
        .reg .b32 %r<4>;
        .reg .f32 %f<4>;
        .reg .u64 %rd<4>;
        .reg .b128 %q<2>;
        {statement}
        ret;
    }}
    """
    instruction = parse(text).kernels[0].body[0]
    assert beyond(instruction) == refused_forms()[form]
