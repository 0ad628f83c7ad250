"""What a GPU computed for matrix products of random matrices, kept beside the tests.

The programs are those of ptx/isa. A file has their memory before a launch, and D after it. It was
made on an H200 (compute capability 9.0, driver 580, CUDA 13.0). This makes it anew on a real GPU,
with the same inputs:

    PYTHONPATH=.:tests CUDASYNC_DEVICE=cuda python -m helpers.lowering.tensor_core_answers
"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from helpers.lowering.isa_cases import ISA, Case, load_case

from cudasync.driver import Device, DeviceBuffer, Module, Stream, launch, memcpy_async

FILE = Path(__file__).parents[2] / "softgpu" / "tensors" / "tensor_core_answers.xz"


@dataclass(frozen=True)
class Answer:
    """One launch: the memory of each input, and of D afterwards."""

    program: str
    inputs: dict[str, bytes]
    d: bytes

    @property
    def case(self) -> Case:
        return load_case(ISA / f"{self.program}.ptx")


def read() -> list[Answer]:
    """All answers. The file is a line of JSON, and the bytes that it names, compressed."""
    head, _, data = lzma.decompress(FILE.read_bytes()).partition(b"\n")
    found, start = [], 0
    for program, sizes in json.loads(head):
        parts = {}
        for name, size in sizes.items():
            parts[name] = data[start : start + size]
            start += size
        found.append(Answer(program, parts, parts.pop("d")))
    assert start == len(data)
    return found


def write(answers: list[Answer]) -> None:
    """Keep answers instead of those that are there."""
    head, data = [], b""
    for each in answers:
        parts = each.inputs | {"d": each.d}
        head.append((each.program, {name: len(part) for name, part in parts.items()}))
        data += b"".join(parts.values())
    FILE.write_bytes(lzma.compress(json.dumps(head).encode() + b"\n" + data, preset=9))


def on_device(answer: Answer, device: Device) -> Answer:
    """The same launch on a device."""
    case = answer.case
    memory = case.memories() | {
        name: np.frombuffer(part, np.uint8) for name, part in answer.inputs.items()
    }
    d = np.empty_like(memory["d"])
    kernel = Module.from_file(case.path, device=device).kernel("test")
    with Stream(device) as stream:
        buffers = {name: DeviceBuffer(array.nbytes, device) for name, array in memory.items()}
        for name, buffer in buffers.items():
            memcpy_async(buffer, memory[name], stream=stream)
        arguments = [buffers[name] for name in case.parameters]
        launch(kernel, grid=case.grid, block=case.block, args=arguments, stream=stream)
        memcpy_async(d, buffers["d"], stream=stream)
        stream.synchronize()
    return Answer(answer.program, answer.inputs, d.tobytes())


if __name__ == "__main__":
    write([on_device(each, Device(0)) for each in read()])
