"""Cellar, jit. The budget of a block, from which loops and calls are paid.

While a warp runs, the rest of the budget is in a register, which no other thread can reach. So a
block gets its budget in grains: when one is spent, it calls `@cudasync.grant`, which takes another
from the reserve. To end a launch, another thread sets the grain to 0; the block then times out.

Python delivers signals to one thread, and a block on that thread would delay them until its end. So
that thread polls for signals at each grant. An exception from a handler is kept in the job. The
block may run one more second, so that a kernel that ends soon is not cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.jit.kernel_abi.fault_exit import emit_fault
from cudasync.softgpu.jit.kernel_abi.job_record import FaultCode, Field, read_field, write_field

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.builder import Builder

# The time that a block may go on after an exception; the number of its clock on Linux.
_GRACE_NS = 10**9
_MONOTONIC = 1


def spend(builder: Builder, cost: int, position: int, mask: str, then: str) -> None:
    """Pay for a trip through a loop from the budget, and go to `then`.

    If nothing is left, the launch has timed out.
    """
    before = builder.name("load i64, ptr %fuel")
    after = builder.name(f"sub i64 {before}, {cost}")
    builder.emit(f"store i64 {after}, ptr %fuel")
    spent = _branch_if_spent(builder, after, then)
    builder.label(spent)
    now = _ask(builder, after)
    builder.emit(f"store i64 {now}, ptr %fuel")
    _end_if_spent(builder, now, position, mask, then)


def pay(builder: Builder, cost: int, position: int, mask: str, *, has_fuel: bool) -> None:
    """Pay for a call, because functions that call others twice may run for years."""
    if has_fuel:
        before = builder.name("load i64, ptr %fuel")
    else:
        before = read_field(builder, Field.BUDGET_LEFT)
    after = builder.name(f"sub i64 {before}, {cost}")
    write_field(builder, Field.BUDGET_LEFT, after)
    paid = builder.fresh("paid")
    spent = _branch_if_spent(builder, after, paid)
    builder.label(spent)
    now = _ask(builder, after)
    write_field(builder, Field.BUDGET_LEFT, now)
    _end_if_spent(builder, now, position, mask, paid)
    builder.label(paid)


def _branch_if_spent(builder: Builder, left: str, then: str) -> str:
    spent = builder.fresh("spent")
    is_spent = builder.name(f"icmp slt i64 {left}, 0")
    builder.emit(f"br i1 {is_spent}, label %{spent}, label %{then}, !prof !1")
    return spent


def _ask(builder: Builder, left: str) -> str:
    more = builder.name("call i64 @cudasync.grant(ptr %job)")
    return builder.name(f"add i64 {left}, {more}")


def _end_if_spent(builder: Builder, left: str, position: int, mask: str, then: str) -> None:
    over = builder.fresh("over")
    is_over = builder.name(f"icmp slt i64 {left}, 0")
    builder.emit(f"br i1 {is_over}, label %{over}, label %{then}")
    builder.label(over)
    emit_fault(builder, FaultCode.TIMEOUT, position, mask)


def _at(field: Field) -> str:
    return f"getelementptr i64, ptr %job, i64 {field.value}"


# The grain is read again each time, because another thread may have changed it.
_GRANT = f"""
define i64 @cudasync.grant(ptr %job) {{
entry:
  %listens.at = {_at(Field.LISTENS)}
  %listens = load i64, ptr %listens.at
  %is.deaf = icmp eq i64 %listens, 0
  br i1 %is.deaf, label %take, label %listen
listen:
  call void @cudasync.listen(ptr %job)
  br label %take
take:
  %grain.at = {_at(Field.GRAIN)}
  %grain = load volatile i64, ptr %grain.at
  %reserve.at = {_at(Field.RESERVE)}
  %reserve = load i64, ptr %reserve.at
  %is.last = icmp ult i64 %reserve, %grain
  %granted = select i1 %is.last, i64 %reserve, i64 %grain
  %rest = sub i64 %reserve, %granted
  store i64 %rest, ptr %reserve.at
  ret i64 %granted
}}
"""

_LISTEN = f"""
define void @cudasync.listen(ptr %job) {{
entry:
  %until.at = {_at(Field.UNTIL_NS)}
  %type.at = {_at(Field.RAISED_TYPE)}
  %type = load i64, ptr %type.at
  %is.new = icmp eq i64 %type, 0
  br i1 %is.new, label %ask, label %wait
ask:
  %state = call i32 @PyGILState_Ensure()
  %result = call i32 @PyErr_CheckSignals()
  %is.raised = icmp ne i32 %result, 0
  br i1 %is.raised, label %keep, label %release
keep:
  %value.at = {_at(Field.RAISED_VALUE)}
  %traceback.at = {_at(Field.RAISED_TRACEBACK)}
  call void @PyErr_Fetch(ptr %type.at, ptr %value.at, ptr %traceback.at)
  %began = call i64 @cudasync.now()
  %until = add i64 %began, {_GRACE_NS}
  store i64 %until, ptr %until.at
  br label %release
release:
  call void @PyGILState_Release(i32 %state)
  ret void
wait:
  %last = load i64, ptr %until.at
  %now = call i64 @cudasync.now()
  %is.over = icmp sgt i64 %now, %last
  br i1 %is.over, label %end, label %leave
end:
  %grain.at = {_at(Field.GRAIN)}
  store volatile i64 0, ptr %grain.at
  ret void
leave:
  ret void
}}

declare i32 @PyGILState_Ensure()
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyGILState_Release(i32)
"""

_NOW = f"""
define i64 @cudasync.now() {{
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 {_MONOTONIC}, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}}

declare i32 @clock_gettime(i32, ptr)
"""

FUNCTIONS = {"@cudasync.grant": _GRANT, "@cudasync.listen": _LISTEN, "@cudasync.now": _NOW}
