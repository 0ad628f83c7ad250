"""Cellar, jit. Turns an address operand and a state space into host addresses and their window.

In every space an address becomes a host address. Global, constant and generic addresses already are
host addresses. Shared, local and parameter addresses are offsets into the block's shared window,
the thread's slab or the parameters. A device function's own variables lie at its frame in that
slab; an address in a register is an offset into the whole slab, whichever function took it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cudasync.ptx import ir
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.jit.kernel_abi.access_descriptors import SHARED_WINDOW, Window
from cudasync.softgpu.jit.kernel_abi.job_record import Field, Where
from cudasync.softgpu.jit.vector_ir.uniformity import Kind, affine
from cudasync.softgpu.jit.vector_ir.values import Value, integer, uniform

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.jit.vector_ir.lowering_context import Lowering


@dataclass(frozen=True, slots=True)
class Place:
    """The target of an access.

    `checked` must lie in `window`; for local memory, which is a window of its own for every thread,
    it is the offset. It is None if the access is correct by construction. A window of None is the
    instruction's cached range.
    """

    address: Value
    checked: Value | None
    where: Where
    window: Window | None

    def changed(self, change: Callable[[Value], Value]) -> Place:
        """The same place with its address in another form."""
        address = change(self.address)
        checked = self.checked
        if checked is not None:
            checked = address if checked is self.address else change(checked)
        return replace(self, address=address, checked=checked)


def place(lowering: Lowering, instruction: ir.Instruction, operand: ir.Operand) -> Place:
    """The place of an address operand of `instruction`, never LIFTED."""
    found = lifted_place(lowering, instruction, operand)
    return found.changed(lambda value: _flat(lowering, value))


def lifted_place(lowering: Lowering, instruction: ir.Instruction, operand: ir.Operand) -> Place:
    """The place of an address operand of `instruction`, perhaps LIFTED."""
    found = _place(lowering, instruction, operand)
    if found.address.shape.kind is Kind.LIFTED:
        return found
    # If the address is not LIFTED, the checked value need not be.
    return found.changed(lambda value: _flat(lowering, value))


def _flat(lowering: Lowering, value: Value) -> Value:
    return lowering.builder.varying(value) if value.shape.kind is Kind.LIFTED else value


def _place(lowering: Lowering, instruction: ir.Instruction, operand: ir.Operand) -> Place:
    if not isinstance(operand, ir.Address):
        lowering.refuse(instruction)
    space = instruction.space
    base = operand.base
    if space is StateSpace.GENERIC and isinstance(base, ir.Symbol):
        # `ld.u32 [name]`: the name of a variable is an address in the variable's own space.
        space = lowering.space_of(base.name)
    builder = lowering.builder
    offset = _offset(lowering, operand)
    match space:
        case StateSpace.SHARED:
            address = builder.add(offset, uniform("i64", "%shared.address"))
            return Place(address, address, Where.WINDOW, SHARED_WINDOW)
        case StateSpace.LOCAL:
            return _local(lowering, instruction, offset, is_named=isinstance(base, ir.Symbol))
        case StateSpace.PARAM:
            if isinstance(base, ir.Symbol) and base.name in lowering.storage.local:
                return _local(lowering, instruction, offset, is_named=True)
            if not lowering.is_kernel:
                if not isinstance(base, ir.Symbol):
                    return _local(lowering, instruction, offset, is_named=False)
                # An argument, in the caller's frame.
                address = builder.add(local_base(lowering), offset)
                return Place(address, None, Where.WINDOW, None)
            address = builder.add(offset, uniform("i64", "%parameters.address"))
            if isinstance(base, ir.Symbol):
                return Place(address, None, Where.WINDOW, None)
            window = Window(Field.PARAMETERS, lowering.storage.parameter_bytes)
            return Place(address, address, Where.WINDOW, window)
        case StateSpace.GENERIC:
            return Place(offset, offset, Where.ANYWHERE, None)
        case StateSpace.GLOBAL | StateSpace.CONST:
            return Place(offset, offset, Where.ALLOCATIONS, None)


def local_base(lowering: Lowering) -> Value:
    """The start of the function's own frame in each lane's slab."""
    return Value("i64", "%local.address", affine(lowering.program.slab.stride, 64))


def slab_base(lowering: Lowering) -> Value:
    """The start of each lane's slab, where a kernel's frame begins."""
    if lowering.is_kernel:
        return local_base(lowering)
    return lowering.builder.subtract(local_base(lowering), lowering.frame_offset())


def _local(
    lowering: Lowering, instruction: ir.Instruction, offset: Value, *, is_named: bool
) -> Place:
    """`offset` counts from the function's frame if it is named, otherwise from the slab."""
    size = instruction.type.size * instruction.vector_size
    if lowering.is_kernel or is_named:
        base, most = local_base(lowering), lowering.storage.local_bytes
    else:
        # The caller has memory in the slab, too.
        base, most = slab_base(lowering), lowering.program.slab_bytes
    address = lowering.builder.add(base, offset)
    window = Window(None, most)
    place = offset.literal
    is_plain = instruction.opcode in ("ld", "st")
    is_right = place is not None and 0 <= place <= most - size and place % size == 0 and is_plain
    return Place(address, None if is_right else offset, Where.WINDOW, window)


def _offset(lowering: Lowering, operand: ir.Address) -> Value:
    """Base plus offset, in 64 bits, before the start of any window is added."""
    builder = lowering.builder
    match operand.base:
        case ir.Register():
            base = lowering.load_register(operand.base)
            base = builder.bitcast(base, f"i{operand.base.type.bits}")
            if base.type == "i32":
                # Offsets into windows; signed, because t - 1 wraps in masked-off lanes.
                base = builder.extend(base, "i64", is_signed=True)
        case ir.Symbol() as symbol:
            base = lowering.symbol_address(symbol)
        case ir.Integer(value=value):
            base = integer("i64", value)
    return builder.add(base, integer("i64", operand.offset))
