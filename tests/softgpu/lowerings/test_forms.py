"""Instruction forms that compilers emit run on both lowerings, or are refused by name."""

from __future__ import annotations

import pytest
from helpers.lowering import bare_launch
from helpers.ptx_generators.instruction_forms import Form, forms, program

from cudasync.errors import PtxError
from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.interface.launch import FaultKind, OutcomeKind

pytestmark = pytest.mark.sampled(3)

# test_textures.py and test_surfaces.py show the effect of these opcodes on an object.
NEED_AN_OBJECT = frozenset({"tex", "tld4", "suld", "sust", "sured"})
# Forms of these opcodes that are in the ISA, but that no available compiler emits.
REFUSED = [
    Form(name)
    for name in (
        "tex.2dms.v4.f32.s32",
        "tex.2d.v4.f16.f32",
        "sust.p.2d.v4.b32.trap",
        "tld4.r.2d.v4.f32.s32",
    )
]

FORMS = forms()
OPCODES = sorted({form.opcode for form in FORMS} - NEED_AN_OBJECT)
both = pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])


@pytest.mark.sampled(7)
@both
@pytest.mark.parametrize("opcode", OPCODES)
def test_every_form_of_an_opcode_runs(opcode, room):
    """This shows only that the form runs; ptx/isa says what it computes."""
    wanted = [form for form in FORMS if form.opcode == opcode]
    module = room.compile_module(parse(program(wanted)))
    outcome = bare_launch.run(module, "k", grid=(1,), block=(32,), args=[bytes(64)])
    assert outcome.kind is OutcomeKind.DONE, outcome.fault


@both
@pytest.mark.parametrize(
    "form", [f for f in FORMS if f.opcode in NEED_AN_OBJECT], ids=lambda f: f.name
)
def test_what_is_no_object_is_an_illegal_access(form, room):
    text = program([form])
    outcome = bare_launch.run(
        room.compile_module(parse(text)), "k", grid=(1,), block=(32,), args=[bytes(64)]
    )
    assert outcome.kind is OutcomeKind.FAULT
    assert outcome.fault.kind is FaultKind.ILLEGAL_ADDRESS
    assert form.name in text.splitlines()[outcome.fault.line - 1]


@both
@pytest.mark.parametrize("form", REFUSED, ids=lambda f: f.name)
def test_what_is_refused_is_refused_by_name_and_line(form, room):
    refusal = room.compile_module(parse(program([form]))).refused["k"]
    assert form.opcode in refusal.message
    assert refusal.line
    assert form.name in refusal.instruction


@both
def test_a_form_that_nobody_has_is_noticed(room):
    with pytest.raises(PtxError, match="add"):
        room.compile_module(parse(program([Form("add.rp.f16")])))
