"""Cellar. Loads, stores and the check before each of them.

The check is one helper function for all accesses: alignment first, then the range. An access in a
window must stay within the window. A global or generic access must stay within one allocation, or
within the block's shared memory, local memory or parameters, which generic addresses may reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Register, Symbol, Vector
from cudasync.ptx.types import ScalarType, StateSpace
from cudasync.softgpu.interface.access_recording import NOTE, NOTE_NAME, Touch, noted
from cudasync.softgpu.oracle.emission.emitter import llvm_type
from cudasync.softgpu.oracle.emission.memory_layout import window
from cudasync.softgpu.oracle.emission.state_records import (
    FAULTED,
    ILLEGAL_ADDRESS,
    MISALIGNED,
    SPACES,
    TIMEOUT,
    BlockState,
)

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction, Operand
    from cudasync.softgpu.oracle.emission.emitter import Emitter

T = ScalarType
S = StateSpace
_WINDOWS = (S.SHARED, S.LOCAL, S.PARAM)

_B = BlockState
_CHECK = f"""define internal i1 @check(ptr %block, i64 %address, i64 %size, i64 %base, i64 %length,
    i1 %is_window, i32 %is_write, i32 %space, i32 %line) {{
entry:
  %ones = sub i64 %size, 1
  %low = and i64 %address, %ones
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %range, label %misaligned
range:
  %offset = sub i64 %address, %base
  %fits = icmp ule i64 %size, %length
  %last = sub i64 %length, %size
  %before_end = icmp ule i64 %offset, %last
  %within = and i1 %fits, %before_end
  br i1 %is_window, label %decide, label %search
decide:
  br i1 %within, label %good, label %bad
search:
  %table_at = getelementptr i8, ptr %block, i64 {_B.allocations.offset}
  %table = load ptr, ptr %table_at
  %count_at = getelementptr i8, ptr %block, i64 {_B.allocation_count.offset}
  %count = load i64, ptr %count_at
  %shared_at = getelementptr i8, ptr %block, i64 {_B.shared.offset}
  %shared = load i64, ptr %shared_at
  %shared_bytes_at = getelementptr i8, ptr %block, i64 {_B.shared_bytes.offset}
  %shared_bytes = load i64, ptr %shared_bytes_at
  %shared_end = add i64 %shared, %shared_bytes
  %local_at = getelementptr i8, ptr %block, i64 {_B.local.offset}
  %local = load i64, ptr %local_at
  %local_bytes_at = getelementptr i8, ptr %block, i64 {_B.local_bytes.offset}
  %local_bytes = load i64, ptr %local_bytes_at
  %local_end = add i64 %local, %local_bytes
  %end = add i64 %address, %size
  %wraps = icmp ult i64 %end, %address
  br i1 %wraps, label %bad, label %scratches
scratches:
  %s1 = icmp uge i64 %address, %shared
  %s2 = icmp ule i64 %end, %shared_end
  %s = and i1 %s1, %s2
  %l1 = icmp uge i64 %address, %local
  %l2 = icmp ule i64 %end, %local_end
  %l = and i1 %l1, %l2
  %parameters_at = getelementptr i8, ptr %block, i64 {_B.parameters.offset}
  %parameters = load i64, ptr %parameters_at
  %parameter_bytes_at = getelementptr i8, ptr %block, i64 {_B.parameter_bytes.offset}
  %parameter_bytes = load i64, ptr %parameter_bytes_at
  %parameters_end = add i64 %parameters, %parameter_bytes
  %p1 = icmp uge i64 %address, %parameters
  %p2 = icmp ule i64 %end, %parameters_end
  %p = and i1 %p1, %p2
  %sl = or i1 %s, %l
  %scratch = or i1 %sl, %p
  br i1 %scratch, label %good, label %next
next:
  %index = phi i64 [0, %scratches], [%index_next, %step]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %test, label %bad
test:
  %pair = shl i64 %index, 4
  %start_at = getelementptr i8, ptr %table, i64 %pair
  %start = load i64, ptr %start_at
  %stop_at = getelementptr i8, ptr %start_at, i64 8
  %stop = load i64, ptr %stop_at
  %t1 = icmp uge i64 %address, %start
  %t2 = icmp ule i64 %end, %stop
  %t = and i1 %t1, %t2
  br i1 %t, label %good, label %step
step:
  %index_next = add i64 %index, 1
  br label %next
good:
  ret i1 true
misaligned:
  br label %record
bad:
  br label %record
record:
  %kind = phi i32 [{MISALIGNED}, %misaligned], [{ILLEGAL_ADDRESS}, %bad]
  %kind_at = getelementptr i8, ptr %block, i64 {_B.fault_kind.offset}
  store i32 %kind, ptr %kind_at
  %line_at = getelementptr i8, ptr %block, i64 {_B.fault_line.offset}
  store i32 %line, ptr %line_at
  %address_at = getelementptr i8, ptr %block, i64 {_B.fault_address.offset}
  store i64 %address, ptr %address_at
  %bytes_at = getelementptr i8, ptr %block, i64 {_B.fault_bytes.offset}
  %size32 = trunc i64 %size to i32
  store i32 %size32, ptr %bytes_at
  %write_at = getelementptr i8, ptr %block, i64 {_B.fault_is_write.offset}
  store i32 %is_write, ptr %write_at
  %space_at = getelementptr i8, ptr %block, i64 {_B.fault_space.offset}
  store i32 %space, ptr %space_at
  ret i1 false
}}"""


def space_of(e: Emitter, i: Instruction, operand: Operand) -> StateSpace:
    """The space that the instruction names; a symbol used generically gives its own space."""
    space = i.space
    if isinstance(operand, Address) and isinstance(operand.base, Symbol):
        if space in (S.PARAM, S.GENERIC) and e.places.is_in_frame(operand.base.name):
            # A parameter whose address is taken lies in local memory.
            return S.LOCAL
        if space is S.GENERIC:
            return e.places.space(operand.base.name)
    return space


def address(e: Emitter, i: Instruction, operand: Operand, size: int, *, is_write: bool) -> str:
    """The checked host address of an access, as ptr; a bad address ends the thread with a fault."""
    return address_at(e, i, operand, "0", size, is_write=is_write)


def address_at(
    e: Emitter, i: Instruction, operand: Operand, distance: str, size: int, *, is_write: bool
) -> str:
    """As `address`, but `distance` bytes (an i64) further on."""
    if not isinstance(operand, Address):
        e.refuse("the operand must be an address in brackets")
    space = space_of(e, i, operand)
    if isinstance(operand.base, Symbol) and operand.base.name in e.activation.memory:
        # A .param variable of the current function: the record holds it, and only its name gives
        # access to it.
        offset = e.activation.memory[operand.base.name] + operand.base.offset + operand.offset
        return e.at(e.base(), offset)
    where = _sum(e, operand, space)
    if distance != "0":
        where = e.value(f"add i64 {where}, {distance}")
    start, length = "0", "0"
    if space in _WINDOWS:
        start, length = window(e, space)
        where = e.value(f"add i64 {where}, {start}")
    check(e, where, size, (start, length) if space in _WINDOWS else None, space, is_write)
    if e.record and space not in _WINDOWS:
        _note(e, i, where, size, is_write=is_write)
    return e.value(f"inttoptr i64 {where} to ptr")


def _sum(e: Emitter, operand: Address, space: StateSpace) -> str:
    """Base plus offset; a window has 32-bit addresses, which wrap."""
    if space in _WINDOWS and isinstance(operand.base, Register) and operand.base.type.bits == 32:
        base = e.read(operand.base, T.U32)
        return e.value(f"zext i32 {e.value(f'add i32 {base}, {operand.offset}')} to i64")
    return e.value(f"add i64 {e.read(operand.base, T.U64)}, {operand.offset}")


def check(
    e: Emitter,
    where: str,
    size: int,
    bounds: tuple[str, str] | None,
    space: StateSpace,
    is_write: bool,
) -> None:
    if not e.memcheck:
        return
    assert e.instruction is not None
    e.helpers["check"] = _CHECK
    start, length = bounds or ("0", "0")
    block = e.block()
    good = e.helper(
        "i1",
        "check",
        ("ptr", block),
        ("i64", where),
        ("i64", str(size)),
        ("i64", start),
        ("i64", length),
        ("i1", "true" if bounds else "false"),
        ("i32", str(int(is_write))),
        ("i32", str(SPACES.index(space))),
        ("i32", str(e.instruction.span.line)),
    )
    going_on, failed = e.fresh("good"), e.fresh("fault")
    e.line(f"br i1 {good}, label %{going_on}, label %{failed}")
    e.label(failed)
    e.line(f"ret i32 {FAULTED}")
    e.label(going_on)


def _note(e: Emitter, i: Instruction, where: str, size: int, *, is_write: bool) -> None:
    """Record the access; a store that is not atomic is recorded without a read."""
    kind = Touch.WRITTEN if is_write else Touch.READ
    if is_write and i.opcode in ("atom", "red"):
        kind = Touch.READ | Touch.WRITTEN
    bits = noted(kind, i.opcode, i.modifiers)
    e.helpers[NOTE_NAME] = NOTE
    block = e.block()
    table = e.field(block, BlockState.recording.offset, "ptr")
    count = e.field(block, BlockState.recording_count.offset, "i64")
    e.line(
        f"call void @{NOTE_NAME}(ptr {table}, i64 {count}, i64 {where}, i64 {size},"
        f" i8 {bits}, i64 {i.span.line}, i64 0)"
    )


def set_fault(e: Emitter, kind: int) -> None:
    """End the thread with a fault at the current instruction."""
    assert e.instruction is not None
    for offset, value in (
        (BlockState.fault_kind.offset, kind),
        (BlockState.fault_line.offset, e.instruction.span.line),
    ):
        e.line(f"store i32 {value}, ptr {e.at(e.block(), offset)}")
    e.line(f"ret i32 {FAULTED}")


def spend(e: Emitter, cost: int) -> None:
    """Take `cost` off the block's budget; when nothing is left, the launch has timed out."""
    budget = e.at(e.block(), BlockState.budget.offset)
    left = e.value(f"sub i64 {e.value(f'load i64, ptr {budget}')}, {cost}")
    e.line(f"store i64 {left}, ptr {budget}")
    spent, going_on = e.fresh("spent"), e.fresh("affords")
    is_spent = e.value(f"icmp slt i64 {left}, 0")
    e.line(f"br i1 {is_spent}, label %{spent}, label %{going_on}")
    e.label(spent)
    set_fault(e, TIMEOUT)
    e.label(going_on)


def elements(operand: Operand) -> tuple[Operand, ...]:
    """The members of a vector operand, or the operand itself."""
    return operand.elements if isinstance(operand, Vector) else (operand,)


def load(e: Emitter, i: Instruction) -> None:
    """Lower ld, ldu."""
    targets = elements(i.operands[0])
    where = address(e, i, i.operands[1], i.type.size * len(targets), is_write=False)
    loaded = [
        e.value(f"load {llvm_type(i.type)}, ptr {e.at(where, index * i.type.size)}, align 1")
        for index in range(len(targets))
    ]
    # All values are read before any is written: a target may be the address register.
    for target, value in zip(targets, loaded, strict=True):
        e.write(target, value, i.type)


def store(e: Emitter, i: Instruction) -> None:
    """Lower st."""
    sources = elements(i.operands[1])
    values = [e.read(source, i.type) for source in sources]
    where = address(e, i, i.operands[0], i.type.size * len(sources), is_write=True)
    for index, value in enumerate(values):
        place = e.at(where, index * i.type.size)
        e.line(f"store {llvm_type(i.type)} {value}, ptr {place}, align 1")


def nothing(e: Emitter, i: Instruction) -> None:
    """Lower fences and prefetches to nothing: threads run one at a time, in order."""
