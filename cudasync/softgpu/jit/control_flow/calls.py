"""Cellar, jit. call: device functions, each an LLVM function of its own.

The lanes of a warp call together: the callee runs for the active lanes, and returns with all of
them. The callee's frame begins where its caller's ends. Arguments and results lie in the caller's
frame, and the callee receives their offsets, counted from its own frame; or they are vectors of
the warp (`argument_vectors`), and the callee receives their addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Symbol, Vector
from cudasync.softgpu.jit.addressing.address_spaces import local_base
from cudasync.softgpu.jit.analysis.cost_model import call_cost
from cudasync.softgpu.jit.block_loop.warp_loop import warp_arguments
from cudasync.softgpu.jit.kernel_abi.fault_exit import emit_fault
from cudasync.softgpu.jit.kernel_abi.instruction_budget import pay
from cudasync.softgpu.jit.kernel_abi.job_record import DONE, FaultCode, Field, read_field
from cudasync.softgpu.jit.memory.argument_vectors import clear_vector, vector_address
from cudasync.softgpu.jit.memory.gather_scatter import scatter
from cudasync.softgpu.jit.transforms.program import LEAST_FRAME_BYTES
from cudasync.softgpu.jit.vector_ir.lane_masks import mask_bits

if TYPE_CHECKING:
    from cudasync.ptx import ir
    from cudasync.softgpu.jit.vector_ir.lowering_context import Emitter, Lowering


def function_name(function: ir.Function) -> str:
    return f'@"function.{function.name}"'


def argument_names(function: ir.Function) -> dict[str, int]:
    """The number of each parameter and result, by name."""
    variables = (*function.parameters, *function.results)
    return {variable.name: number for number, variable in enumerate(variables)}


def _call(lowering: Lowering, instruction: ir.Instruction) -> None:
    results, callee, arguments = instruction.operands[:3]
    assert isinstance(results, Vector)
    assert isinstance(arguments, Vector)
    if not isinstance(callee, Symbol):
        lowering.refuse(instruction, "an indirect call is not implemented by the software GPU")
    function = lowering.program.functions.get(callee.name)
    if function is None:
        _provided(lowering, instruction, callee.name, results)
        return
    wanted = len(function.parameters), len(function.results)
    if (len(arguments.elements), len(results.elements)) != wanted:
        lowering.refuse(instruction, f"{callee.name} takes {wanted[0]} and returns {wanted[1]}")
    builder = lowering.builder
    frame = max(lowering.storage.local_bytes, 0 if lowering.is_kernel else LEAST_FRAME_BYTES)
    needed = max(lowering.program.storages[function.name].local_bytes, LEAST_FRAME_BYTES)
    left = builder.name(f"sub i64 %stack.left, {frame}")
    fits, overflows = builder.fresh("fits"), builder.fresh("overflows")
    is_enough = builder.name(f"icmp sge i64 {left}, {needed}")
    builder.emit(f"br i1 {is_enough}, label %{fits}, label %{overflows}, !prof !2")
    builder.label(overflows)
    emit_fault(builder, FaultCode.ILLEGAL_ADDRESS, lowering.number(), lowering.mask)
    builder.label(fits)
    own = builder.name(f"add i64 %local.address, {frame}")
    replaced = {
        "%local.address": own,
        "%active.bits": mask_bits(builder, lowering.mask),
        "%resume": "0",
        "%release": "0",
        "%stack.left": left,
    }
    values = [
        f"{type_} {replaced.get(name, name)}" for type_, name in warp_arguments(builder.lanes)
    ]
    for operand in (*arguments.elements, *results.elements):
        assert isinstance(operand, Symbol), instruction.text
        if operand.name in lowering.storage.passed:
            if operand in results.elements:
                clear_vector(lowering, operand.name)
            values.append(f"i64 {vector_address(lowering, operand.name)}")
            continue
        offset = lowering.symbol_address(operand)
        values.append(f"i64 {builder.name(f'sub i64 {offset.text}, {frame}')}")
    if lowering.undefined is not None:
        values += lowering.undefined.arguments((*arguments.elements, *results.elements))
    has_fuel = lowering.has_fuel
    cost = call_cost(function)
    pay(builder, cost, lowering.number(), lowering.mask, has_fuel=has_fuel)
    code = builder.name(f"call i32 {function_name(function)}({', '.join(values)})")
    if has_fuel:
        builder.emit(f"store i64 {read_field(builder, Field.BUDGET_LEFT)}, ptr %fuel")
    went = builder.fresh("went")
    is_done = builder.name(f"icmp eq i32 {code}, {DONE}")
    builder.emit(f"br i1 {is_done}, label %{went}, label %fault")
    builder.label(went)


def _provided(lowering: Lowering, instruction: ir.Instruction, name: str, results: Vector) -> None:
    """Calls of functions that are only declared, which the driver would link in."""
    builder = lowering.builder
    if name == "__assertfail":
        emit_fault(builder, FaultCode.ASSERT, lowering.number(), lowering.mask)
        builder.label(builder.fresh("behind"))
    elif name == "vprintf":
        # Nothing is printed: its result, a number of characters, is 0.
        for target in results.elements:
            if isinstance(target, Symbol):
                place = builder.add(local_base(lowering), lowering.symbol_address(target))
                scatter(lowering, place, 0, "i32", "zeroinitializer")
    else:
        lowering.refuse(instruction, f"function {name} is declared, but not defined")


EMITTERS: dict[str, Emitter] = {"call": _call}
