"""Every program of ptx/isa computes what its header says: on each lowering, and on the device."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import direct
from helpers.cases import Case, all_cases

from cudasync.driver import Device, DeviceBuffer, Module, Stream, launch, memcpy_async
from cudasync.ptx import parse
from cudasync.softgpu import oracle

CASES = all_cases()
LOWERINGS = {"oracle": oracle.compile_module}


def check(case: Case, memory: dict[str, np.ndarray]) -> None:
    wrong = [line for name in case.expected for line in case.mismatches(name, memory[name])]
    assert not wrong, f"{case.path}: {case.purpose}\n" + "\n".join(wrong)


@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_lowering_gives_what_the_isa_promises(case: Case, lowering: str):
    module = LOWERINGS[lowering](parse(case.text, case.path.name))
    memory = {name: direct.aligned(array) for name, array in case.memories().items()}
    values = {name: value.bytes() for name, value in case.values.items()}
    outcome = direct.run(
        module,
        "test",
        grid=case.grid,
        block=case.block,
        shared_bytes=case.shared_bytes,
        args=[(memory | values)[name] for name in case.parameters],
    )
    assert outcome.fault is None
    check(case, memory)


@pytest.fixture(scope="module")
def stream():
    with Stream(Device(0)) as on:
        yield on


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_device_gives_what_the_isa_promises(case: Case, stream: Stream):
    """The software GPU or a real one, whichever is there: through the driver."""
    if stream.device.compute_capability < case.compute_capability:
        pytest.skip(f"the program needs compute capability {case.compute_capability}")
    kernel = Module.from_file(case.path, device=stream.device).kernel("test")
    memory = case.memories()
    buffers = {name: DeviceBuffer(array.nbytes, stream.device) for name, array in memory.items()}
    for name, buffer in buffers.items():
        memcpy_async(buffer, memory[name], stream=stream)
    values = {name: value.array()[0] for name, value in case.values.items()}
    launch(
        kernel,
        grid=case.grid,
        block=case.block,
        shared_bytes=case.shared_bytes,
        args=[(buffers | values)[name] for name in case.parameters],
        stream=stream,
    )
    for name, buffer in buffers.items():
        memcpy_async(memory[name], buffer, stream=stream)
    stream.synchronize()
    for buffer in buffers.values():
        buffer.close()
    check(case, memory)
