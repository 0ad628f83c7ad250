"""Matrix products have the bits that a GPU computed for the same inputs.

The answers include sums that overflow, cancel, or lose bits, subnormals, infinities and NaNs. The
payload of a NaN is not part of an answer.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from helpers.lowering import bare_launch
from helpers.lowering.tensor_core_answers import Answer, on_device, read

from cudasync.driver import Device
from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.interface.launch import OutcomeKind
from cudasync.softgpu.oracle.interpreter import tensor_core_sums

ANSWERS = {program: list(each) for program, each in groupby(read(), lambda answer: answer.program)}
_DTYPES = {"f16": np.float16, "f32": np.float32}


def on_lowering(module, answer: Answer) -> bytes:
    case = answer.case
    given = {name: np.frombuffer(part, np.uint8) for name, part in answer.inputs.items()}
    memory = {
        name: bare_launch.aligned(np.array(each))
        for name, each in (case.memories() | given).items()
    }
    args = [memory[name] for name in case.parameters]
    outcome = bare_launch.run(module, "test", grid=case.grid, block=case.block, args=args)
    assert outcome.kind is OutcomeKind.DONE, outcome
    return memory["d"].tobytes()


def wrong_elements(answer: Answer, found: bytes) -> list[int]:
    """The places where the bits differ, except for two NaNs."""
    dtype = np.dtype(_DTYPES[answer.case.expected["d"].type])
    one, other = (np.frombuffer(each, dtype) for each in (answer.d, found))
    alike = one.view(f"u{dtype.itemsize}") == other.view(f"u{dtype.itemsize}")
    return np.flatnonzero(~(alike | (np.isnan(one) & np.isnan(other)))).tolist()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])
@pytest.mark.parametrize("program", ANSWERS)
def test_answers_of_an_h200(program, room):
    answers = ANSWERS[program]
    module = room.compile_module(parse(answers[0].case.text))
    for each in answers:
        assert wrong_elements(each, on_lowering(module, each)) == []


def test_a_program_runs_on_the_device():
    device = Device(0)
    for answer in ANSWERS["mma_m16n8k16_f32_f16"]:
        if device.compute_capability < answer.case.compute_capability:
            pytest.skip(f"the program needs compute capability {answer.case.compute_capability}")
        assert wrong_elements(answer, on_device(answer, device).d) == []


def test_a_bit_more_would_be_noticed(monkeypatch):
    answers = ANSWERS["mma_m16n8k8_f32_f16"]
    module = oracle.compile_module(parse(answers[0].case.text))
    monkeypatch.setattr(tensor_core_sums, "KEPT_BITS", 26)
    assert any(wrong_elements(each, on_lowering(module, each)) for each in answers)
