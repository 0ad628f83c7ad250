"""Both lowerings refuse a type that an instruction does not have, and name the line.

Mutations of ptx/isa showed the need: the parser accepts such statements, because the lowerings
check the forms of instructions.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cudasync import ptx
from cudasync.errors import PtxError
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.expansion import expand
from cudasync.softgpu.semantics.instruction_validity import unfit_type

ISA = Path(__file__).resolve().parents[3] / "ptx" / "isa"
LOWERINGS = {"jit": jit.compile_module, "oracle": oracle.compile_module}


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize(
    ("file", "right", "wrong", "told"),
    [
        ("set_s32", "set.lt.u32.s32 %", "set.lt.pred.s32 %", "set does not take .pred"),
        ("bfind_u64", "bfind.u64 %", "bfind.f64 %", "bfind does not take .f64"),
        ("testp_f64", "testp.infinite.f64 %", "testp.infinite.b64 %", "testp does not take .b64"),
    ],
)
def test_a_type_the_instruction_does_not_have_is_refused(lowering, file, right, wrong, told):
    text = (ISA / f"{file}.ptx").read_text()
    assert right in text
    line = text[: text.index(right)].count("\n") + 1
    with pytest.raises(PtxError, match=told) as caught:
        LOWERINGS[lowering](ptx.parse(text.replace(right, wrong, 1), "mutated.ptx"))
    assert (caught.value.file, caught.value.line) == ("mutated.ptx", line)


def test_every_type_in_use_fits():
    """The table has every type that our own programs use, which ptxas accepts."""
    for file in sorted(ISA.glob("*.ptx")):
        for function in expand(ptx.parse(file.read_text(), file.name)).functions:
            for instruction in function.body:
                assert unfit_type(instruction) is None, (file.name, instruction.text)
