"""Every program of ptx/isa computes what its header says: on each lowering, and on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers.lowering import bare_launch
from helpers.lowering.device_launch import run_on_device
from helpers.lowering.isa_cases import Case, all_cases

from cudasync.driver import Device
from cudasync.errors import PtxError
from cudasync.ptx import parse
from cudasync.softgpu import jit, oracle
from cudasync.softgpu.jit.analysis.streaming_stores import find_nontemporal
from cudasync.softgpu.jit.kernel_abi import kernel_text

pytestmark = pytest.mark.sampled(5)

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np

    from cudasync.softgpu.interface.launch import Compile, CompiledModule

CASES = all_cases()
# Programs that the vector lowering refuses. When it accepts one, its test fails (xfail).
NOT_YET: dict[str, str] = {}
# Without --run-slow, only every SAMPLE-th program goes through the driver too.
SAMPLE = 8
# Many of these differ in a shape only, and each is a function to compile: one in three runs.
MATRICES = ("mma_", "wmma_", "ldmatrix_", "stmatrix_")

# Addresses may be right with memcheck and wrong without it, so these cases run without it too.
OF_LOCAL_MEMORY = [case for case in CASES if case.name.startswith(("local_", "param_address"))]


def compiled(compile_module: Compile, case: Case) -> CompiledModule:
    return compile_module(parse(case.text, case.path.name))


def run(module: CompiledModule, case: Case) -> dict[str, np.ndarray]:
    """Run a program on a lowering alone, and return its memory."""
    memory = {name: bare_launch.aligned(array) for name, array in case.memories().items()}
    values = {name: value.bytes() for name, value in case.values.items()}
    outcome = bare_launch.run(
        module,
        "test",
        grid=case.grid,
        block=case.block,
        shared_bytes=case.shared_bytes,
        args=[(memory | values)[name] for name in case.parameters],
    )
    assert outcome.fault is None
    return memory


def on_device(case: Case) -> dict[str, np.ndarray]:
    """Run a program through the driver, on the software GPU or a real one."""
    if Device(0).compute_capability < case.compute_capability:
        pytest.skip(f"the program needs compute capability {case.compute_capability}")
    return run_on_device(case, case.memories())


def check(case: Case, memory: dict[str, np.ndarray]) -> None:
    wrong = [line for name in case.expected for line in case.mismatches(name, memory[name])]
    assert not wrong, f"{case.path}: {case.purpose}\n" + "\n".join(wrong)


def programs(*, refused: dict[str, str] | None = None, sample: int = 1) -> pytest.MarkDecorator:
    """Every program as a parameter: refused programs are expected to fail, and others are slow."""
    parameters = []
    for index, case in enumerate(CASES):
        marks = []
        if refused and case.name in refused:
            reason = f"{refused[case.name]} is not implemented"
            marks.append(pytest.mark.xfail(reason=reason, raises=PtxError))
        if index % sample or (case.name.startswith(MATRICES) and index % 3):
            marks.append(pytest.mark.slow)
        parameters.append(pytest.param(case, id=case.name, marks=marks))
    return pytest.mark.parametrize("case", parameters)


@programs(refused=NOT_YET)
def test_the_vector_lowering_gives_what_the_isa_promises(case: Case, monkeypatch):
    module = jit.compile_module(parse(case.text, case.path.name))
    check(case, run(module, case))
    if find_nontemporal(module.kernels["test"]._program()) is not None:
        # Large launches alone use these stores.
        monkeypatch.setattr(kernel_text, "LEAST_BYTES", 0)
        check(case, run(module, case))


@programs()
def test_the_scalar_lowering_gives_what_the_isa_promises(case: Case):
    check(case, run(compiled(oracle.compile_module, case), case))


@pytest.mark.parametrize("room", [jit, oracle], ids=["jit", "oracle"])
@pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in OF_LOCAL_MEMORY])
def test_pointers_into_local_memory_are_right_without_memcheck(case: Case, room: ModuleType):
    check(case, run(room.compile_module(parse(case.text), memcheck=False), case))


@programs(sample=SAMPLE)
def test_the_device_gives_what_the_isa_promises(case: Case):
    try:
        memory = on_device(case)
    except PtxError:
        if case.name in NOT_YET and Device(0).is_software:
            pytest.xfail(f"{NOT_YET[case.name]} is not implemented")
        raise
    check(case, memory)
