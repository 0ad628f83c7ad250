"""Cellar, jit. Rounding towards zero, down and up, by the processor's rounding mode.

A function sets the rounding mode, does one operation on the whole warp, and resets the mode to
nearest. LLVM must neither move nor fold the operation (LLVM LangRef, "Constrained Floating-Point
Intrinsics").
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.vector_ir.values import Value, suffix, uniform, varying

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

DIRECTED = ("rz", "rm", "rp")

# The arguments of fesetround in <fenv.h>, nearest first.
MODES = {
    "x86_64": {"rn": 0, "rm": 0x400, "rp": 0x800, "rz": 0xC00},
    "aarch64": {"rn": 0, "rp": 0x400000, "rm": 0x800000, "rz": 0xC00000},
}
_CASTS = frozenset({"fptrunc", "sitofp", "uitofp"})


def rounded(lowering: Lowering, operation: str, mode: str, result: str, *operands: Value) -> Value:
    """`operation` (fadd, fma, sqrt, fptrunc, sitofp, ...) rounded by `mode`."""
    builder = lowering.builder
    modes = MODES.get(platform.machine())
    if modes is None:
        lowering.refuse_here(f"rounding mode .{mode} is not implemented on {platform.machine()}")
    is_scalar = all(operand.is_uniform for operand in operands)
    wrap = str if is_scalar else builder.vector_type
    texts = [operand.text if is_scalar else builder.vector(operand) for operand in operands]
    types = [wrap(operand.type) for operand in operands]
    prefix = "." if is_scalar else f".v{builder.lanes}"
    overloads = prefix + suffix(result)
    if operation in _CASTS:
        overloads += prefix + suffix(operands[0].type)
    intrinsic = f"@llvm.experimental.constrained.{operation}{overloads}"
    name = f"@cudasync.rounded.{operation}.{mode}{overloads}"
    target = wrap(result)
    builder.declarations.add("declare i32 @fesetround(i32)")
    metadata = ", metadata" * 2
    builder.declarations.add(f"declare {target} {intrinsic}({', '.join(types)}{metadata})")
    parameters = ", ".join(f"{type_} %{index}" for index, type_ in enumerate(types))
    builder.functions[name] = f"""
define {target} {name}({parameters}) noinline optnone strictfp {{
  call i32 @fesetround(i32 {modes[mode]}) strictfp
  %result = call {target} {intrinsic}({parameters}, metadata !"round.dynamic",
      metadata !"fpexcept.strict") strictfp
  call i32 @fesetround(i32 {modes["rn"]}) strictfp
  ret {target} %result
}}
"""
    arguments = ", ".join(f"{type_} {text}" for type_, text in zip(types, texts, strict=True))
    found = builder.name(f"call {target} {name}({arguments})")
    return uniform(result, found) if is_scalar else varying(result, found)
