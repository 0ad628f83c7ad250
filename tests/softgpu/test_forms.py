"""Instruction forms that compilers emit run on both lowerings, or are refused by name."""

from __future__ import annotations

import pytest
from helpers import direct
from helpers.forms import Form, forms, program

from cudasync.errors import PtxError
from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.launching import OutcomeKind

pytestmark = pytest.mark.sampled(3)

KERNELS = 3117
# Textures and surfaces: a launch has no way to bind them here.
REFUSED = frozenset({"tex", "tld4", "suld", "sust", "sured"})

FORMS = forms()
OPCODES = sorted({form.opcode for form in FORMS} - REFUSED)
both = pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])


@both
@pytest.mark.parametrize("opcode", OPCODES)
def test_every_form_of_an_opcode_runs(opcode, room):
    """Only that it runs; what it computes is for ptx/isa to say."""
    wanted = [form for form in FORMS if form.opcode == opcode]
    module = room.compile_module(parse(program(wanted)))
    outcome = direct.run(module, "k", grid=(1,), block=(32,), args=[bytes(64)])
    assert outcome.kind is OutcomeKind.DONE, outcome.fault


@both
@pytest.mark.parametrize("form", [f for f in FORMS if f.opcode in REFUSED], ids=lambda f: f.name)
def test_what_is_refused_is_refused_by_name_and_line(form, room):
    refusal = room.compile_module(parse(program([form]))).refused["k"]
    assert form.opcode in refusal.message
    assert refusal.line
    assert form.name in refusal.instruction


def test_nearly_every_kernel_of_the_corpus_is_complete():
    """At most as many kernels lack something as have a refused form, each counted by itself."""
    lacking = sum(form.kernels for form in FORMS if form.opcode in REFUSED)
    assert 0 < lacking < 0.03 * KERNELS


@both
def test_a_form_that_nobody_has_is_noticed(room):
    with pytest.raises(PtxError, match="add"):
        room.compile_module(parse(program([Form("add.rp.f16")])))
