"""Every program of ptx/isa computes what its header says."""

from __future__ import annotations

import pytest
from helpers import direct
from helpers.cases import Case, all_cases

from cudasync.ptx import parse
from cudasync.softgpu import oracle

CASES = all_cases()
LOWERINGS = {"oracle": oracle.compile_module}


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_lowering_gives_what_the_isa_promises(case: Case, lowering: str):
    module = LOWERINGS[lowering](parse(case.text, case.path.name))
    memory = {
        name: direct.aligned(case.memory(name))
        for name in case.parameters
        if name not in case.values
    }
    outcome = direct.run(
        module,
        "test",
        grid=case.grid,
        block=case.block,
        shared_bytes=case.shared_bytes,
        args=[
            memory[name] if name in memory else case.values[name].bytes()
            for name in case.parameters
        ],
    )
    assert outcome.fault is None
    wrong = [line for name in case.expected for line in case.mismatches(name, memory[name])]
    assert not wrong, f"{case.path}: {case.purpose}\n" + "\n".join(wrong)
