"""Cellar. The operands of instructions on textures and surfaces: a handle, and a place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cudasync.ptx.ir import Address, Integer, Register, Symbol, Vector
from cudasync.ptx.types import ScalarType, StateSpace
from cudasync.softgpu.interface.texture_layout import Field

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction, Module, Operand
    from cudasync.softgpu.expansion.rewriter import Parts

T = ScalarType

# By geometry: the number of coordinates, and whether a layer comes before them.
GEOMETRIES: Final = {
    "1d": (1, False),
    "2d": (2, False),
    "3d": (3, False),
    "a1d": (1, True),
    "a2d": (2, True),
    "cube": (3, False),
    "acube": (3, True),
}
_NOWHERE: Final = Integer(0)


@dataclass(frozen=True, slots=True)
class Place:
    """`[handle, {layer, x, y, z}]`."""

    handle: Address
    coordinates: tuple[Operand, ...]
    layer: Operand | None


def geometry_of(instruction: Instruction) -> str | None:
    """The only geometry among the modifiers."""
    found = [each for each in instruction.modifiers if each in GEOMETRIES]
    return found[0] if len(found) == 1 else None


def place_of(operand: Operand, geometry: str) -> Place | None:
    """The place that a bracketed operand describes; None if it does not fit the geometry."""
    if not isinstance(operand, Vector) or len(operand.elements) != 2:
        # For instance an operand with a sampler of its own.
        return None
    handle, where = operand.elements
    if not isinstance(handle, Address) or handle.offset:
        return None
    given = where.elements if isinstance(where, Vector) else (where,)
    count, has_layer = GEOMETRIES[geometry]
    wanted = count + has_layer
    # Three coordinates are written as four.
    if len(given) != wanted and not (wanted == 3 and len(given) == 4):
        return None
    layer = given[0] if has_layer else None
    return Place(handle, given[has_layer:wanted], layer)


def enter(parts: Parts, module: Module, address: Address, kind: int) -> Register | None:
    """The object that a handle names; any other handle is an illegal access at this instruction.

    None if the handle's origin is unknown.
    """
    base = address.base
    if isinstance(base, Register):
        handle = parts.compute("mov.u64", base)
    elif isinstance(base, Symbol) and any(
        each.name == base.name and each.space is StateSpace.GLOBAL for each in module.variables
    ):
        # A reference: a variable in which the driver keeps the handle.
        handle = parts.register(T.B64)
        parts.settle("ld.global.u64", handle, address)
    else:
        return None
    found, first = parts.register(T.B64), parts.register(T.B64)
    parts.settle("ld.global.u64", found, Address(handle, Field.KIND))
    is_one = parts.compute("setp.eq.u64", found, Integer(kind), type_=T.PRED)
    checked = parts.compute("selp.b64", handle, _NOWHERE, is_one)
    parts.settle("ld.global.u64", first, Address(checked, Field.BASE))
    return handle


def field(parts: Parts, handle: Register, offset: int) -> Register:
    """A word of the object."""
    found = parts.register(T.B32)
    parts.settle("ld.global.u32", found, Address(handle, offset))
    return found


def layer_of(parts: Parts, handle: Register, layer: Operand) -> Register:
    """An existing layer: the last one if `layer` is beyond it."""
    last = parts.compute("sub.u32", field(parts, handle, Field.LAYERS), Integer(1))
    return parts.compute("min.u32", layer, last)
