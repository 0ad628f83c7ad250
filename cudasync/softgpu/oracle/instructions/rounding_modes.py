"""Cellar. Floating-point arithmetic in every rounding mode, with the processor's rounding modes.

LLVM's plain operations round to nearest. For another mode, a helper function sets the processor's
rounding mode, does one operation, and restores the mode. LLVM may neither move nor fold that
operation (LLVM LangRef, "Constrained Floating-Point Intrinsics").
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from cudasync.ptx.types import ScalarType
from cudasync.softgpu.oracle.emission.emitter import llvm_type

if TYPE_CHECKING:
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType
MODES = frozenset({"rn", "rz", "rm", "rp"})

# The arguments of fesetround in <fenv.h>.
_BY_MACHINE = {
    "x86_64": {"rn": 0, "rm": 0x400, "rp": 0x800, "rz": 0xC00},
    "aarch64": {"rn": 0, "rp": 0x400000, "rm": 0x800000, "rz": 0xC00000},
}
_PLAIN = {"fadd": "fadd", "fsub": "fsub", "fmul": "fmul", "fdiv": "fdiv"}
_CASTS = frozenset({"fptrunc", "sitofp", "uitofp"})


def suffix(type_: ScalarType) -> str:
    """The type in the spelling of intrinsics."""
    return type_.value if type_.is_float else f"i{type_.bits}"


def rounded(
    e: Emitter, operation: str, mode: str, result: ScalarType, *arguments: tuple[ScalarType, str]
) -> str:
    """One LLVM operation, rounded by `mode`: fadd, fma, sqrt, fptrunc, sitofp, ..."""
    typed = [(llvm_type(type_), value) for type_, value in arguments]
    target = llvm_type(result)
    if mode != "rn":
        name = _helper(e, operation, mode, result, [type_ for type_, _ in arguments])
        return e.helper(target, name, *typed)
    if operation in _PLAIN:
        return e.value(f"{operation} {target} {typed[0][1]}, {typed[1][1]}")
    if operation in _CASTS:
        return e.value(f"{operation} {typed[0][0]} {typed[0][1]} to {target}")
    return e.call(target, f"llvm.{operation}.{suffix(result)}", *typed)


def _helper(
    e: Emitter, operation: str, mode: str, result: ScalarType, sources: list[ScalarType]
) -> str:
    modes = _BY_MACHINE.get(platform.machine())
    if modes is None:
        e.refuse(f"rounding mode .{mode} is not implemented on {platform.machine()}")
    suffixes = suffix(result)
    if operation in _CASTS:
        suffixes += f".{suffix(sources[0])}"
    name = f"rounded.{operation}.{mode}.{suffixes}"
    intrinsic = f"llvm.experimental.constrained.{operation}.{suffixes}"
    target = llvm_type(result)
    types = [llvm_type(source) for source in sources]
    parameters = ", ".join(f"{type_} %{index}" for index, type_ in enumerate(types))
    constrained = f'{parameters}, metadata !"round.dynamic", metadata !"fpexcept.strict"'
    metadata = ", metadata" * 2
    e.helpers.setdefault("fesetround", "declare i32 @fesetround(i32)")
    e.helpers.setdefault(intrinsic, f"declare {target} @{intrinsic}({', '.join(types)}{metadata})")
    e.helpers.setdefault(
        name,
        f"define internal {target} @{name}({parameters}) noinline optnone strictfp {{\n"
        f"  call i32 @fesetround(i32 {modes[mode]}) strictfp\n"
        f"  %result = call {target} @{intrinsic}({constrained}) strictfp\n"
        f"  call i32 @fesetround(i32 {modes['rn']}) strictfp\n"
        f"  ret {target} %result\n}}",
    )
    return name


def flush(e: Emitter, value: str, type_: ScalarType) -> str:
    """The value; a subnormal becomes the zero of its sign."""
    bits = e.to_bits(value, type_)
    width = f"i{type_.bits}"
    exponent = {T.F32: 0x7F800000, T.F64: 0x7FF << 52, T.F16: 0x7C00, T.BF16: 0x7F80}[type_]
    is_small = e.value(f"icmp eq {width} {e.value(f'and {width} {bits}, {exponent}')}, 0")
    sign = e.value(f"and {width} {bits}, {1 << (type_.bits - 1)}")
    return e.from_bits(e.select(is_small, width, sign, bits), type_)


def saturate(e: Emitter, value: str, type_: ScalarType) -> str:
    """The value clamped to [0, 1]; a NaN and -0 become +0."""
    target = llvm_type(type_)
    is_positive = e.value(f"fcmp ogt {target} {value}, 0.0")
    value = e.select(is_positive, target, value, "0.0")
    is_large = e.value(f"fcmp ogt {target} {value}, 1.0")
    return e.select(is_large, target, "1.0", value)
