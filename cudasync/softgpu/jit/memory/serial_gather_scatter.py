"""Cellar, jit. Functions that load or store lane after lane, first lane first.

They replace scatter, and gather of less than 32 bits on AVX2, for which there are no vector
instructions. LLVM would emit a branch for each lane, every time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.builder import Builder


def mover(builder: Builder, what: str, bits: int) -> str:
    """The function for "gather" or "scatter": it takes addresses, displacement, values and mask.

    The mask has at least one lane; addresses are 64-bit words, values are packed.
    """
    name = f"@cudasync.{what}.{bits}"
    if name in builder.functions:
        return name
    if what == "gather":
        move = f"""  %value = load i{bits}, ptr %pointer, align 1
  store i{bits} %value, ptr %value.at"""
    else:
        move = f"""  %value = load i{bits}, ptr %value.at
  store i{bits} %value, ptr %pointer, align 1"""
    builder.functions[name] = f"""
define void {name}(ptr %addresses, i64 %displacement, ptr %values, i32 %mask) {{
entry:
  br label %next
next:
  %left = phi i32 [%mask, %entry], [%rest, %next]
  %lane = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %lowered = sub i32 %left, 1
  %rest = and i32 %left, %lowered
  %address.at = getelementptr i64, ptr %addresses, i32 %lane
  %address = load i64, ptr %address.at
  %place = add i64 %address, %displacement
  %pointer = inttoptr i64 %place to ptr
  %value.at = getelementptr i{bits}, ptr %values, i32 %lane
{move}
  %is.over = icmp eq i32 %rest, 0
  br i1 %is.over, label %done, label %next
done:
  ret void
}}
"""
    return name


def by_mover(builder: Builder, what: str, bits: int, count: int, lanes: int) -> list[str]:
    """Move `count` vectors of `lanes` lanes at `%values` lane after lane, by `%addresses`."""
    routine, vector = mover(builder, what, bits), f"<{lanes} x i{bits}>"
    lines = []
    for n in range(count):
        lines.append(f"  %values.{n} = getelementptr {vector}, ptr %values, i32 {n}")
        if what == "gather":
            lines.append(f"  store {vector} zeroinitializer, ptr %values.{n}")
        lines += [
            f"  call void {routine}(ptr %addresses, i64 {n * bits // 8}, ptr %values.{n},"
            " i32 %mask)",
        ]
    return lines
