"""Both lowerings compute what a real GPU computed, for random inputs of ptx/isa.

The answers are kept in files beside this one; `helpers/lowering/hardware_answers.py` and
`approximate_answers.py` say of which GPU they are, and make them anew.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import pytest
from helpers.lowering import approximate_answers, hardware_answers
from helpers.lowering.isa_cases import ISA, load_case

from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle

if TYPE_CHECKING:
    from types import ModuleType

    from helpers.lowering.hardware_answers import Answer

ANSWERS = {
    program: list(rows)
    for program, rows in groupby(hardware_answers.read(), key=lambda each: each.program)
}
APPROXIMATE = approximate_answers.read()

both_lowerings = pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])


def differing(room: ModuleType, answers: list[Answer]) -> list[str]:
    """A line for each element that is not as on the real GPU."""
    case = load_case(ISA / f"{answers[0].program}.ptx")
    module = room.compile_module(parse(case.text, case.path.name))
    lines = []
    for answer in answers:
        before = hardware_answers.random_memory(case, answer.seed)
        if hardware_answers.digest(case, before) != answer.digest:
            continue
        after = hardware_answers.compute(module, case, before)
        assert after is not None, f"{case.name}, seed {answer.seed}: a fault"
        lines += hardware_answers.differences(case, answer, after)
    return lines


@pytest.mark.sampled(5)
@both_lowerings
@pytest.mark.parametrize("program", ANSWERS)
def test_random_inputs_give_what_a_real_gpu_gave(program: str, room: ModuleType):
    lines = differing(room, ANSWERS[program])
    assert not lines, "\n".join(lines)


@pytest.mark.sampled(3)
@both_lowerings
@pytest.mark.parametrize("instruction", approximate_answers.BOUNDS)
def test_approximations_agree_with_a_real_gpu_in_kind_and_nearly(
    instruction: str, room: ModuleType
):
    found = approximate_answers.compute(room.compile_module, instruction)
    lines = approximate_answers.differences(instruction, APPROXIMATE[instruction], found)
    assert not lines, "\n".join(lines)


def test_few_answers_are_stale():
    """A program that has changed is left out; were many, the file would be worth nothing."""
    stale = set()
    for program, answers in ANSWERS.items():
        path = ISA / f"{program}.ptx"
        before = path.exists() and hardware_answers.random_memory(load_case(path), answers[0].seed)
        if not before or hardware_answers.digest(load_case(path), before) != answers[0].digest:
            stale.add(program)
    assert len(stale) < len(ANSWERS) / 10, sorted(stale)


def test_a_wrong_bit_is_found():
    answer = ANSWERS["add_sub_s32"][0]
    name, raw = next(iter(answer.memory.items()))
    memory = answer.memory | {name: bytes([raw[0] ^ 1]) + raw[1:]}
    assert len(differing(jit, [replace(answer, memory=memory)])) == 1


def test_a_wrong_sign_and_a_distant_result_are_found():
    kept = APPROXIMATE["sin.approx.f32"]
    wrong = kept.copy()
    place = int(np.flatnonzero(np.abs(kept) > 0.5)[0])
    wrong[place] = -wrong[place]
    other = int(np.flatnonzero(np.abs(kept) > 0.5)[1])
    wrong[other] += 1e-5
    assert len(approximate_answers.differences("sin.approx.f32", kept, wrong)) == 2
