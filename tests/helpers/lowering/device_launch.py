"""Running a program of ptx/isa through the driver, on the software GPU or a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.driver import Device, DeviceBuffer, Module, Stream, launch, memcpy_async

if TYPE_CHECKING:
    import numpy as np
    from helpers.lowering.isa_cases import Case


def run_on_device(
    case: Case, memory: dict[str, np.ndarray], *, ordinal: int = 0
) -> dict[str, np.ndarray]:
    """Launch the program with this memory behind its pointers, and return what is there afterwards.

    Raises PtxError or CudaError where the driver refuses the program or the program faults.
    """
    device = Device(ordinal)
    kernel = Module.from_file(case.path, device=device).kernel("test")
    after = {name: array.copy() for name, array in memory.items()}
    values = {name: value.array()[0] for name, value in case.values.items()}
    with Stream(device) as stream:
        buffers = {name: DeviceBuffer(array.nbytes, device) for name, array in after.items()}
        for name, buffer in buffers.items():
            memcpy_async(buffer, after[name], stream=stream)
        launch(
            kernel,
            grid=case.grid,
            block=case.block,
            shared_bytes=case.shared_bytes,
            args=[(buffers | values)[name] for name in case.parameters],
            stream=stream,
        )
        for name, buffer in buffers.items():
            memcpy_async(after[name], buffer, stream=stream)
        stream.synchronize()
        for buffer in buffers.values():
            buffer.close()
    return after
