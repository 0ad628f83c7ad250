"""What a real GPU gave for approximate instructions, kept in a file, and how far we may be from it.

    PYTHONPATH=.:tests CUDASYNC_DEVICE=cuda python -m helpers.lowering.approximate_answers FILE

makes the file anew on the present GPU; the kept one is of the GPU of `hardware_answers`. Results
must agree in kind (zero, subnormal, normal, infinite, NaN, and the sign), and be as near as the
errors of hardware and of our polynomials permit.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from helpers.lowering import bare_launch

from cudasync.driver import Device, DeviceBuffer, Module, Stream, launch, memcpy_async
from cudasync.ptx import parse

if TYPE_CHECKING:
    from cudasync.softgpu.interface.launch import Compile

KEPT = Path(__file__).parents[2] / "softgpu" / "lowerings" / "approximate_answers.npz"
_BLOCK = 32
_DTYPES = {"f16": np.uint16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}
# Least normal numbers.
_NORMAL = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}


@dataclass(frozen=True)
class Bound:
    """The greatest distance from the real GPU: relative to its result, plus an absolute part."""

    relative: float
    absolute: float = 0.0


_CIRCULAR = Bound(0, 2.0**-21)
_LOGARITHM = Bound(2.0**-21, 2.0**-21)
_TANH = Bound(2.0**-15)
_TWO_UNITS = Bound(2.0**-22)
_HALF = Bound(2.0**-9, 2.0**-24)
_BRAIN = Bound(2.0**-6)
BOUNDS = {
    **{f"{name}.approx{ftz}.f32": bound
       for name, bound in {
           "sin": _CIRCULAR, "cos": _CIRCULAR, "ex2": _TWO_UNITS, "lg2": _LOGARITHM,
           "rcp": _TWO_UNITS, "sqrt": _TWO_UNITS, "rsqrt": _TWO_UNITS, "div": _TWO_UNITS,
       }.items()
       for ftz in ("", ".ftz")},
    "tanh.approx.f32": _TANH,
    "div.full.f32": _TWO_UNITS,
    "div.full.ftz.f32": _TWO_UNITS,
    "rcp.approx.ftz.f64": Bound(2.0**-19),
    "rsqrt.approx.f64": Bound(2.0**-51),
    "rsqrt.approx.ftz.f64": Bound(2.0**-19),
    "tanh.approx.f16": _HALF,
    "ex2.approx.f16": _HALF,
    "ex2.approx.ftz.bf16": _BRAIN,
    "tanh.approx.bf16": _BRAIN,
}  # fmt: skip


def type_of(instruction: str) -> str:
    return instruction.rpartition(".")[2]


def inputs(instruction: str, which: int) -> np.ndarray:
    """Operand `which`: every 128th number of 16 bits, or ordinary numbers and any bits."""
    type_ = type_of(instruction)
    dtype = np.dtype(_DTYPES[type_])
    count = 1 << 16
    if dtype == np.uint16:
        return np.arange(count, dtype=np.uint16)[5::128].copy()
    random = np.random.default_rng([len(instruction), which, 7])
    parts = [
        random.normal(0, 1, count // 4),
        random.uniform(-100, 100, count // 4),
        random.uniform(0, 3, count // 4),
    ]
    ordinary = np.concatenate(parts).astype(dtype)
    bits = random.integers(0, 256, (count - len(ordinary)) * dtype.itemsize, np.uint8)
    return np.concatenate([ordinary[::192], bits.view(dtype)[::64]])


def text(instruction: str) -> str:
    """A program that applies the instruction to one element in each thread."""
    type_ = type_of(instruction)
    size_bytes = np.dtype(_DTYPES[type_]).itemsize
    register = "b16" if size_bytes == 2 else type_
    sources = "%x, %y" if instruction.startswith("div") else "%x"
    return f"""
.version 7.8
.target sm_90
.address_size 64
.visible .entry test(.param .u64 a, .param .u64 b, .param .u64 result)
{{
    .reg .u64 %a, %b, %result;
    .reg .u32 %index, %size, %thread;
    .reg .{register} %x, %y, %z;
    ld.param.u64 %a, [a];
    ld.param.u64 %b, [b];
    ld.param.u64 %result, [result];
    mov.u32 %index, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %index, %index, %size, %thread;
    mad.wide.u32 %a, %index, {size_bytes}, %a;
    mad.wide.u32 %b, %index, {size_bytes}, %b;
    mad.wide.u32 %result, %index, {size_bytes}, %result;
    ld.global.{register} %x, [%a];
    ld.global.{register} %y, [%b];
    {instruction} %z, {sources};
    st.global.{register} [%result], %z;
    ret;
}}
"""


def compute(compile_module: Compile, instruction: str) -> np.ndarray:
    """The results of a lowering alone."""
    memory = [bare_launch.aligned(inputs(instruction, which)) for which in (0, 1)]
    memory.append(bare_launch.aligned(np.zeros_like(memory[0])))
    module = compile_module(parse(text(instruction)))
    grid = (len(memory[0]) // _BLOCK,)
    outcome = bare_launch.run(module, "test", grid=grid, block=(_BLOCK,), args=memory)
    assert outcome.fault is None, outcome
    return memory[2]


def record(instruction: str) -> np.ndarray:
    """The results of the present device."""
    device = Device(0)
    kernel = Module.from_ptx(text(instruction), device=device).kernel("test")
    given = [inputs(instruction, which) for which in (0, 1)]
    result = np.zeros_like(given[0])
    with Stream(device) as stream:
        buffers = [DeviceBuffer(result.nbytes, device) for _ in range(3)]
        for buffer, array in zip(buffers, given, strict=False):
            memcpy_async(buffer, array, stream=stream)
        grid = (len(result) // _BLOCK,)
        launch(kernel, grid=grid, block=(_BLOCK,), args=buffers, stream=stream)
        memcpy_async(result, buffers[2], stream=stream)
        stream.synchronize()
        for buffer in buffers:
            buffer.close()
    return result


def _numbers(type_: str, array: np.ndarray) -> np.ndarray:
    if type_ == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    # A signalling NaN is one, too.
    with np.errstate(invalid="ignore"):
        return (array.view(np.float16) if type_ == "f16" else array).astype(np.float64)


def _kinds(type_: str, numbers: np.ndarray) -> list[str]:
    size = np.abs(numbers)
    names = np.select(
        [np.isnan(numbers), size == 0, size < _NORMAL[type_], np.isinf(numbers)],
        ["NaN", "zero", "subnormal", "infinite"],
        "normal",
    )
    is_signed = np.signbit(numbers) & ~np.isnan(numbers)
    return [f"{'-' if sign else ''}{name}" for sign, name in zip(is_signed, names, strict=True)]


def differences(instruction: str, kept: np.ndarray, found: np.ndarray) -> list[str]:
    """A line for each result that differs in kind, or more than its bound permits."""
    type_, bound = type_of(instruction), BOUNDS[instruction]
    real, ours = _numbers(type_, kept), _numbers(type_, found)
    kinds = _kinds(type_, real), _kinds(type_, ours)
    with np.errstate(invalid="ignore"):
        is_far = np.abs(real - ours) > np.abs(real) * bound.relative + bound.absolute
    given = [inputs(instruction, which) for which in (0, 1)]
    return [
        f"{instruction} of {given[0][i]!r}, {given[1][i]!r}: {real[i]!r} on the real GPU, "
        f"{ours[i]!r} here"
        for i in range(len(real))
        if kinds[0][i] != kinds[1][i] or is_far[i]
    ]


def read(path: Path = KEPT) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return dict(file)


if __name__ == "__main__":
    np.savez_compressed(sys.argv[1], **{each: record(each) for each in BOUNDS})
