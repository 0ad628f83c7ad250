"""Kernels of one matrix product, whose matrices lie in memory as fragments do in registers.

Register r of lane l is word 32 r + l, so that `matrix_fragments` says where an element is.
"""

from __future__ import annotations

import numpy as np
from helpers.lowering import bare_launch

from cudasync.ptx import parse
from cudasync.softgpu.interface.launch import OutcomeKind
from cudasync.softgpu.semantics.matrix_forms import ELEMENT_BITS, Form, form_of
from cudasync.softgpu.semantics.matrix_fragments import LANES, fragment

_MMA = "mma.sync.aligned.{shape}.{layouts}.{d}.{a}.{b}.{c}"
_WMMA = "wmma.mma.sync.aligned.{layouts}.{shape}.{d}.{c}"
_WMMA_OF_TYPES = "wmma.mma.sync.aligned.{layouts}.{shape}.{d}.{a}.{b}.{c}"
# The products of tensor cores in floating point, but for f64: shapes and types of A, B, C and D.
_FORMS = [
    (_MMA, "m16n8k16", "f16 f16 f32 f32, f16 f16 f16 f16, bf16 bf16 f32 f32"),
    (_MMA, "m16n8k16", "e4m3 e4m3 f32 f32, e5m2 e4m3 f16 f16, e5m2 e5m2 f32 f32"),
    (_MMA, "m16n8k32", "e4m3 e5m2 f32 f32, e4m3 e4m3 f16 f16, e5m2 e5m2 f32 f32"),
    (_MMA, "m16n8k8", "f16 f16 f32 f32, f16 f16 f16 f16, bf16 bf16 f32 f32, tf32 tf32 f32 f32"),
    (_MMA, "m16n8k4", "tf32 tf32 f32 f32"),
    (_MMA, "m8n8k4", "f16 f16 f32 f32, f16 f16 f16 f16, f16 f16 f16 f32, f16 f16 f32 f16"),
    (_WMMA, "m32n8k16", "f16 f16 f32 f32, f16 f16 f16 f16, f16 f16 f32 f16"),
    (_WMMA, "m8n32k16", "f16 f16 f32 f32, f16 f16 f16 f32"),
    (_WMMA_OF_TYPES, "m16n16k16", "bf16 bf16 f32 f32"),
    (_WMMA_OF_TYPES, "m16n16k8", "tf32 tf32 f32 f32"),
]


def instructions() -> list[str]:
    """The names of products in floating point, each with a shape and types."""
    return [
        pattern.format(
            shape=shape, layouts="row.col", **dict(zip("abcd", types.split(), strict=True))
        )
        for pattern, shape, all_types in _FORMS
        for types in all_types.split(", ")
    ]


def registers_of(operand: str, count: int) -> str:
    return "{" + ", ".join(f"%r_{operand}{index}" for index in range(count)) + "}"


def kernel(instruction: str) -> tuple[Form, str]:
    """The form of a product, and a kernel for it with the parameters a, b, c and d."""
    # The numbers of registers follow from the form, which any text of the instruction gives.
    (function,) = parse(_text(instruction, dict.fromkeys("abcd", 1))).kernels
    forms = [form_of(each) for each in function.body if each.opcode in ("mma", "wmma")]
    (form,) = forms
    assert form is not None, instruction
    counts = {operand: fragment(form, operand).registers for operand in "abcd"}
    return form, _text(instruction, counts)


def _text(instruction: str, counts: dict[str, int]) -> str:
    loads = [
        f"    ld.param.u64 %rd_base, [{operand}];\n    add.u64 %rd_base, %rd_base, %rd_offset;\n"
        + "".join(
            f"    ld.global.b32 %r_{operand}{index}, [%rd_base + {128 * index}];\n"
            for index in range(counts[operand])
        )
        for operand in "abc"
    ]
    stores = "".join(
        f"    st.global.b32 [%rd_base + {128 * index}], %r_d{index};\n"
        for index in range(counts["d"])
    )
    operands = ", ".join(registers_of(operand, counts[operand]) for operand in "dabc")
    return f""".version 8.4
.target sm_90
.address_size 64

.visible .entry test(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{{
    .reg .u32 %r_thread;
    .reg .u64 %rd_base, %rd_offset;
    .reg .b32 {", ".join(f"%r_{operand}<{counts[operand]}>" for operand in "abcd")};

    mov.u32 %r_thread, %tid.x;
    mul.wide.u32 %rd_offset, %r_thread, 4;
{"".join(loads)}
    {instruction}
        {operands};

    ld.param.u64 %rd_base, [d];
    add.u64 %rd_base, %rd_base, %rd_offset;
{stores}    ret;
}}
"""


def elements(form: Form, operand: str, memory: np.ndarray) -> np.ndarray:
    """The bits of a matrix, by product, row and column."""
    held = fragment(form, operand)
    places = memory.view(f"u{ELEMENT_BITS[held.type] // 8}")
    shape = {"a": (form.m, form.k), "b": (form.k, form.n)}.get(operand, (form.m, form.n))
    found = np.zeros((form.batches, *shape), np.uint64)
    for position, place in held.where().items():
        found[position] = places[place]
    return found


def memories(form: Form, random: np.random.Generator, values) -> dict[str, np.ndarray]:
    """Memory for every operand; `values` draws elements of a type by their number."""
    found = {}
    for operand in "abcd":
        held = fragment(form, operand)
        memory = bare_launch.aligned(np.zeros(held.registers * LANES * 4, np.uint8))
        if operand != "d":
            places = memory.view(f"u{ELEMENT_BITS[held.type] // 8}")
            # Places that repeat an element hold the same element.
            first = held.where()
            drawn = values(random, held.type, len(first))
            by_position = dict(zip(first, drawn, strict=True))
            places[:] = [by_position[each] for each in held.positions]
        found[operand] = memory
    return found


def run(module, memory: dict[str, np.ndarray]) -> np.ndarray:
    """The memory of D after the kernel."""
    target = bare_launch.aligned(memory["d"].copy())
    args = [*(memory[each] for each in "abc"), target]
    outcome = bare_launch.run(module, "test", grid=(1,), block=(LANES,), args=args)
    assert outcome.kind is OutcomeKind.DONE, outcome
    return target
