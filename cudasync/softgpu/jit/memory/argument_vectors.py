"""Cellar, jit. Arguments and results of a call as vectors of the warp, on the host's stack.

The caller writes an argument for all 32 lanes, whichever are active: nothing but the call reads it
(`passed_values`). The callee writes results only in active lanes, since its lanes may return from
different places; they begin as zero, so that no lane is undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Symbol
from cudasync.softgpu.jit.vector_ir.function_writer import SILENT
from cudasync.softgpu.jit.vector_ir.values import Value, varying

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering

_BYTES = 8


def passed_name(lowering: Lowering, operand: ir.Operand) -> str | None:
    """The variable that an address names, if it is passed as a vector; else None."""
    if isinstance(operand, Address) and isinstance(operand.base, Symbol):
        name = operand.base.name
        return name if name in lowering.storage.passed else None
    return None


def load_argument(lowering: Lowering, name: str, type_: str) -> Value:
    """An argument of this function, or a result of the function that was just called."""
    builder = lowering.builder
    if builder.is_silent:
        return varying(type_, SILENT)
    place = _place(lowering, name)
    return varying(type_, builder.name(f"load {builder.vector_type(type_)}, ptr {place}, align 64"))


def store_argument(lowering: Lowering, name: str, value: Value) -> None:
    """An argument of the function that is called next, or a result of this function."""
    builder = lowering.builder
    if builder.is_silent:
        return
    place, vector, text = _place(lowering, name), builder.vector_type(value.type), ""
    text = builder.vector(value)
    if name in lowering.storage.arguments and not lowering.is_mask_full:
        old = builder.name(f"load {vector}, ptr {place}, align 64")
        flags = builder.vector_type("i1")
        text = builder.name(f"select {flags} {lowering.mask}, {vector} {text}, {vector} {old}")
    builder.emit(f"store {vector} {text}, ptr {place}, align 64")


def clear_vector(lowering: Lowering, name: str) -> None:
    """Set a result to zero before its call."""
    builder = lowering.builder
    if not builder.is_silent:
        vector = builder.vector_type("i64")
        builder.emit(f"store {vector} zeroinitializer, ptr {_place(lowering, name)}, align 64")


def vector_address(lowering: Lowering, name: str) -> str:
    """The address of a vector, as the word that a callee receives."""
    return lowering.builder.name(f"ptrtoint ptr {_place(lowering, name)} to i64")


def _place(lowering: Lowering, name: str) -> str:
    builder = lowering.builder
    number = lowering.storage.arguments.get(name)
    if number is not None:
        return builder.name(f"inttoptr i64 %argument.{number} to ptr")
    return builder.scratch(f"argument {name}", _BYTES * builder.lanes)
