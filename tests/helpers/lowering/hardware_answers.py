"""What a real GPU computed for random inputs of ptx/isa, kept in a file.

    PYTHONPATH=.:tests CUDASYNC_DEVICE=cuda python -m helpers.lowering.hardware_answers FILE

makes the file anew on the present GPU. The kept file is of an H200 (compute capability 9.0, driver
580, CUDA 13.0), of 2026-11-27. The answer of a program that has changed since is stale, and is left
out until the file is made anew.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from helpers.lowering import bare_launch
from helpers.lowering.device_launch import run_on_device
from helpers.lowering.isa_cases import all_cases

from cudasync.driver import Device
from cudasync.errors import CudasyncError
from cudasync.ptx import parse
from cudasync.softgpu import jit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from helpers.lowering.isa_cases import Case

    from cudasync.softgpu.interface.launch import CompiledModule

KEPT = Path(__file__).parents[2] / "softgpu" / "lowerings" / "hardware_answers.xz"
SEEDS = range(1, 6)
_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_SCALES = (1, 100, 1e-3, 30)
# Matrix products round in their own way; approximations have `approximate_answers`.
_ELSEWHERE = ("mma_", "wmma_", "cos_", "sin_", "ex2_", "lg2_", "tanh_", "rcp_approx", "rsqrt_")
_ELSEWHERE += ("sqrt_approx", "div_approx", "div_full", "reciprocals_gross")
# With random inputs these leave what the PTX ISA defines, or need not end.
_UNDEFINED = (
    # lanes outside of their own member mask: CUDA_ERROR_ILLEGAL_INSTRUCTION
    "vote_in_branch",
    # more bytes of source than the copy has
    "cp_async_src_size",
    "spin_",
)


@dataclass(frozen=True)
class Answer:
    """The memory that a real GPU left, by parameter; `digest` is of the program and its inputs."""

    program: str
    seed: int
    digest: str
    memory: dict[str, bytes]


def random_memory(case: Case, seed: int) -> dict[str, np.ndarray]:
    """Random elements for each INPUT: ordinary numbers, and with even seeds edges and any bits."""
    random = np.random.default_rng([seed, len(case.name)])
    memory = case.memories()
    for name, before in memory.items():
        if name in case.inputs:
            type_ = case.inputs[name].type
            draw = _random_floats if type_ in _FLOATS else _random_integers
            memory[name] = draw(random, seed, type_, len(before)).view(np.uint8).copy()
    return memory


def _random_floats(
    random: np.random.Generator, seed: int, type_: str, size_bytes: int
) -> np.ndarray:
    dtype = _FLOATS[type_]
    count = size_bytes // np.dtype(dtype).itemsize
    numbers = random.normal(0, _SCALES[seed % 4], count).astype(dtype)
    if seed % 2 == 0:
        any_bits = random.integers(0, 256, size_bytes, np.uint8).view(dtype)
        numbers = np.where(random.random(count) < 0.3, any_bits, numbers).astype(dtype)
    return numbers


def _random_integers(
    random: np.random.Generator, seed: int, type_: str, size_bytes: int
) -> np.ndarray:
    dtype = np.dtype(f"u{int(type_[1:]) // 8}")
    count = size_bytes // dtype.itemsize
    numbers = random.integers(0, 256, size_bytes, np.uint8).view(dtype)
    if seed % 2 == 0:
        small = random.integers(0, 40, count).astype(dtype)
        numbers = np.where(random.random(count) < 0.5, small, numbers).astype(dtype)
    return numbers


def digest(case: Case, memory: dict[str, np.ndarray]) -> str:
    """Names a program without its comments, and the memory that it begins with."""
    code = "\n".join(line for line in case.text.splitlines() if not line.startswith("//"))
    found = hashlib.sha256(f"{code} {case.grid} {case.block} {case.shared_bytes}".encode())
    for name in sorted(memory):
        found.update(memory[name].tobytes())
    return found.hexdigest()[:16]


def is_asked(case: Case) -> bool:
    """Whether random inputs of this program have an answer that is worth keeping."""
    return bool(case.inputs) and not case.name.startswith((*_ELSEWHERE, *_UNDEFINED))


def compute(module: CompiledModule, case: Case, memory: dict[str, np.ndarray]) -> dict | None:
    """The memory that a compiled program leaves; None if it faults."""
    after = {name: bare_launch.aligned(array) for name, array in memory.items()}
    values = {name: value.bytes() for name, value in case.values.items()}
    outcome = bare_launch.run(
        module,
        "test",
        grid=case.grid,
        block=case.block,
        shared_bytes=case.shared_bytes,
        args=[(after | values)[name] for name in case.parameters],
    )
    return after if outcome.fault is None else None


def differences(case: Case, answer: Answer, memory: dict[str, np.ndarray]) -> list[str]:
    """A line for each element that differs in a bit; any two NaNs of a float type are equal."""
    lines = []
    for name, raw in answer.memory.items():
        type_ = (case.expected.get(name) or case.inputs[name]).type
        bits = np.dtype(f"u{int(type_[1:]) // 8}")
        kept, found = np.frombuffer(raw, bits), memory[name].view(bits)
        differs = kept != found
        if type_ in _FLOATS:
            numbers = kept.view(_FLOATS[type_]), found.view(_FLOATS[type_])
            differs &= ~(np.isnan(numbers[0]) & np.isnan(numbers[1]))
        lines += [
            f"{case.name}, seed {answer.seed}, {name}[{index}]: "
            f"{int(kept[index]):#x} on the real GPU, {int(found[index]):#x} here"
            for index in np.flatnonzero(differs)
        ]
    return lines


def record() -> Iterator[Answer]:
    """The answers of the present device; a program that faults on the software GPU is not asked."""
    capability = Device(0).compute_capability
    for case in all_cases():
        if not is_asked(case) or case.compute_capability > capability:
            continue
        module = jit.compile_module(parse(case.text, case.path.name))
        for seed in SEEDS:
            before = random_memory(case, seed)
            try:
                if compute(module, case, before) is None:
                    continue
                after = run_on_device(case, before)
            except CudasyncError as error:
                print(f"{case.name}, seed {seed}: {error}", file=sys.stderr)
                continue
            written = {
                name: array.tobytes()
                for name, array in after.items()
                if name in case.expected or (array != before[name]).any()
            }
            yield Answer(case.name, seed, digest(case, before), written)


def write(path: Path, answers: Iterable[Answer]) -> None:
    """A line of JSON that says what follows, and the bytes of all memory, compressed."""
    rows, contents = [], []
    for each in answers:
        sizes = {name: len(raw) for name, raw in each.memory.items()}
        rows.append([each.program, each.seed, each.digest, sizes])
        contents += each.memory.values()
    head = json.dumps(rows, separators=(",", ":")).encode()
    path.write_bytes(lzma.compress(head + b"\n" + b"".join(contents), preset=9))


def read(path: Path = KEPT) -> list[Answer]:
    """The answers of a file."""
    head, _, contents = lzma.decompress(path.read_bytes()).partition(b"\n")
    answers, place = [], 0
    for program, seed, name, sizes in json.loads(head):
        memory = {}
        for parameter, size in sizes.items():
            memory[parameter] = contents[place : place + size]
            place += size
        answers.append(Answer(program, seed, name, memory))
    return answers


if __name__ == "__main__":
    write(Path(sys.argv[1]), record())
