"""Cellar. call and ret of device functions.

The callee's activation record begins where its caller's ends, and so does its local memory.
Arguments are copied into the record, and results out of it. In between it is the current record. A
function is lowered once for a kernel. It returns to the call site that its record names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Register, Sink, Symbol, Vector
from cudasync.softgpu.oracle.emission.activation_record import (
    CALLER_OFFSET,
    LOCAL_OFFSET,
    SITE_OFFSET,
)
from cudasync.softgpu.oracle.emission.emitter import llvm_type
from cudasync.softgpu.oracle.emission.state_records import ASSERT, ILLEGAL_ADDRESS, ThreadState
from cudasync.softgpu.oracle.instructions.load_store import set_fault, spend

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Instruction, Operand, Variable
    from cudasync.softgpu.oracle.emission.emitter import Emitter


def call(e: Emitter, i: Instruction) -> None:
    """Lower a call of a function of this module, or of one that the driver provides."""
    results, callee, arguments = i.operands[:3]
    assert isinstance(results, Vector)
    assert isinstance(arguments, Vector)
    if not isinstance(callee, Symbol):
        e.refuse("an indirect call is not implemented")
    function = e.places.function(callee.name)
    if function is None or function.is_declaration:
        _provided(e, callee.name, results)
        return
    if function.is_kernel:
        e.refuse(f"{callee.name} is a kernel, and device code cannot call a kernel")
    if function not in e.called:
        e.called.append(function)
    layout = e.activation_of(function)
    caller = e.base()
    base = e.at(caller, e.activation.size_bytes)
    _check_stack(e, base, layout.size_bytes)
    _begin_frame(e, caller, base, function)
    # Calls alone may take for ever: each function of a chain may call the next one twice.
    spend(e, len(function.body) + 16)
    for parameter, argument in zip(function.parameters, arguments.elements, strict=True):
        _pass(e, caller, base, function, parameter, argument)
    number = len(e.returns)
    e.line(f"store i32 {number}, ptr {e.at(base, SITE_OFFSET)}")
    e.line(f"store ptr {caller}, ptr {e.at(base, CALLER_OFFSET)}")
    e.line(f"store ptr {base}, ptr {e.at('%frame', ThreadState.activation.offset)}")
    behind = e.fresh("behind")
    e.returns.append(behind)
    e.line(f"br label %{e.label_of(0, function)}")
    e.label(behind)
    # give_back() has made the caller's record current again.
    caller = e.base()
    base = e.at(caller, e.activation.size_bytes)
    for result, target in zip(function.results, results.elements, strict=True):
        _return(e, caller, base, function, result, target)


def _provided(e: Emitter, name: str, results: Vector) -> None:
    """Call a function that is only declared: one that the driver would link in."""
    if name == "__assertfail":
        set_fault(e, ASSERT)
        e.label(e.fresh("dead"))
    elif name == "vprintf":
        for target in results.elements:
            # The number of characters. The oracle does not show what is printed.
            if isinstance(target, Symbol):
                e.line(f"store i32 0, ptr {e.at(e.base(), e.activation.memory[target.name])}")
    else:
        e.refuse(f"function {name} is declared, but not defined")


def _check_stack(e: Emitter, base: str, size: int) -> None:
    end = e.value(f"ptrtoint ptr {e.at(base, size)} to i64")
    limit = e.field("%frame", ThreadState.stack_end.offset, "i64")
    fits, overflows = e.fresh("fits"), e.fresh("overflows")
    is_within = e.value(f"icmp ule i64 {end}, {limit}")
    e.line(f"br i1 {is_within}, label %{fits}, label %{overflows}")
    e.label(overflows)
    set_fault(e, ILLEGAL_ADDRESS)
    e.label(fits)


def _begin_frame(e: Emitter, caller: str, base: str, function: Function) -> None:
    """Begin the callee's local memory where the caller's ends, if enough is left."""
    frames = e.places.frames
    start = e.field(caller, LOCAL_OFFSET, "i64")
    start = e.value(f"add i64 {start}, {frames.bytes_of[e.function.name]}")
    e.line(f"store i64 {start}, ptr {e.at(base, LOCAL_OFFSET)}")
    own = frames.bytes_of[function.name]
    if own:
        fits, overflows = e.fresh("fits"), e.fresh("overflows")
        is_within = e.value(f"icmp ule i64 {start}, {frames.thread_bytes - own}")
        e.line(f"br i1 {is_within}, label %{fits}, label %{overflows}")
        e.label(overflows)
        set_fault(e, ILLEGAL_ADDRESS)
        e.label(fits)


def _home(e: Emitter, base: str, function: Function, variable: Variable) -> str:
    """The address of a parameter or result; a .reg one is a register of the record."""
    in_frame = e.places.frames.offset(function, variable.name)
    if in_frame is not None:
        memory = e.field("%frame", ThreadState.local.offset, "ptr")
        frame = e.field(base, LOCAL_OFFSET, "i64")
        return e.at(e.value(f"getelementptr i8, ptr {memory}, i64 {frame}"), in_frame[0])
    layout = e.activation_of(function)
    offset = layout.registers.get(variable.name)
    return e.at(base, layout.memory[variable.name] if offset is None else offset)


def _pass(
    e: Emitter, caller: str, base: str, function: Function, parameter: Variable, value: Operand
) -> None:
    home = _home(e, base, function, parameter)
    if isinstance(value, Symbol) and value.name in e.activation.memory:
        _copy(e, e.at(caller, e.activation.memory[value.name]), home, parameter.size)
    else:
        type_ = parameter.type
        e.line(f"store {llvm_type(type_)} {e.read(value, type_)}, ptr {home}")


def _return(
    e: Emitter, caller: str, base: str, function: Function, result: Variable, target: Operand
) -> None:
    home = _home(e, base, function, result)
    if isinstance(target, Symbol):
        _copy(e, home, e.at(caller, e.activation.memory[target.name]), result.size)
    elif isinstance(target, Register):
        e.write(target, e.value(f"load {llvm_type(result.type)}, ptr {home}"), result.type)
    else:
        assert isinstance(target, Sink)


def _copy(e: Emitter, source: str, target: str, size: int) -> None:
    for index in range(size):
        byte = e.value(f"load i8, ptr {e.at(source, index)}")
        e.line(f"store i8 {byte}, ptr {e.at(target, index)}")


def give_back(e: Emitter) -> None:
    """Lower ret: make the caller's record current again, and go on after the call."""
    base = e.base()
    site = e.field(base, SITE_OFFSET, "i32")
    caller = e.field(base, CALLER_OFFSET, "ptr")
    e.line(f"store ptr {caller}, ptr {e.at('%frame', ThreadState.activation.offset)}")
    e.line(f"store i32 {site}, ptr %site")
    e.line("br label %return")
