"""Cellar. suld, sust and sured become loads, stores and reductions of global memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.ptx.ir import Address, Integer, Symbol, Vector
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.expansion.textures.functions import name_of
from cudasync.softgpu.expansion.textures.operands import enter, field, geometry_of, place_of
from cudasync.softgpu.interface.texture_layout import SURFACE, Field

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction, Module, Operand, Register
    from cudasync.softgpu.expansion.rewriter import Parts

T = ScalarType
_ZERO: Final = Integer(0)
_BEYOND: Final = ("trap", "clamp", "zero")
_GEOMETRIES: Final = ("1d", "2d", "3d", "a1d", "a2d")
_LOADED: Final = (T.B8, T.B16, T.B32, T.B64)
_COMBINED: Final = {
    "add": (T.U32, T.S32, T.U64),
    "min": (T.U32, T.S32, T.U64, T.S64),
    "max": (T.U32, T.S32, T.U64, T.S64),
    "and": (T.B32, T.B64),
    "or": (T.B32, T.B64),
}


class Accesses:
    """Rewrites the surface accesses of one module; for `wanted` see `Fetches`."""

    def __init__(self, module: Module, wanted: dict[str, Instruction]) -> None:
        self._module = module
        self._wanted = wanted

    def load(self, parts: Parts, instruction: Instruction) -> bool:
        """Rewrite suld.b."""
        target, where = instruction.operands
        if not _is_plain(instruction):
            return False
        elements = _elements(target)
        if len(elements) != instruction.vector_size:
            return False
        size = instruction.type.size * len(elements)
        found = self._place(parts, instruction, where, size)
        if found is None:
            return False
        address, is_active = found
        type_ = T(f"b{max(16, instruction.type.bits)}")
        loaded = tuple(parts.compute(f"mov.{type_.value}", _ZERO) for _ in elements)
        into: Operand = Vector(loaded) if len(loaded) > 1 else loaded[0]
        parts.emit_under(is_active, _name("ld", instruction), (into, Address(address)))
        for each, value in zip(elements, loaded, strict=True):
            parts.write(each, value, type_)
        return True

    def store(self, parts: Parts, instruction: Instruction) -> bool:
        """Rewrite sust.b."""
        where, source = instruction.operands
        if not _is_plain(instruction):
            return False
        elements = _elements(source)
        if len(elements) != instruction.vector_size:
            return False
        size = instruction.type.size * len(elements)
        found = self._place(parts, instruction, where, size)
        if found is None:
            return False
        address, is_active = found
        given: Operand = Vector(elements) if len(elements) > 1 else elements[0]
        parts.emit_under(is_active, _name("st", instruction), (Address(address), given))
        return True

    def combine(self, parts: Parts, instruction: Instruction) -> bool:
        """Rewrite sured, by the byte (.b) or by the texel (.p)."""
        operations = [each for each in instruction.modifiers if each in _COMBINED]
        where, source = instruction.operands
        if len(operations) != 1 or not _is_known(instruction, {"b", "p", *operations}):
            return False
        (operation,) = operations
        type_ = instruction.type
        if type_ not in _COMBINED[operation]:
            return False
        found = self._place(parts, instruction, where, type_.size)
        if found is None:
            return False
        address, is_active = found
        (value,) = _elements(source)
        parts.emit_under(
            is_active, f"red.global.{operation}.{type_.value}", (Address(address), value)
        )
        return True

    def _place(
        self, parts: Parts, instruction: Instruction, where: Operand, size: int
    ) -> tuple[Register, Register] | None:
        """The address of an access, and whether the access happens; traps are already emitted."""
        geometry = geometry_of(instruction)
        assert geometry is not None
        place = place_of(where, geometry)
        handle = enter(parts, self._module, place.handle, SURFACE) if place is not None else None
        if place is None or handle is None:
            return None
        x, *others = place.coordinates
        if "p" in instruction.modifiers:
            x = parts.compute("mul.lo.u32", x, field(parts, handle, Field.TEXEL_BYTES))
        y = others[0] if others else _ZERO
        z = others[1] if len(others) > 1 else place.layer or _ZERO
        address, inside = parts.register(T.B64), parts.register(T.B32)
        self._wanted.setdefault("place", instruction)
        parts.settle(
            "call",
            Vector((address, inside)),
            Symbol(name_of("place")),
            Vector((handle, x, y, z, Integer(size))),
        )
        active = parts.active()
        if "clamp" in instruction.modifiers:
            return address, active
        is_inside = parts.compute("setp.ne.u32", inside, _ZERO, type_=T.PRED)
        if "trap" in instruction.modifiers:
            is_out = parts.compute("not.pred", is_inside)
            parts.emit_under(parts.compute("and.pred", is_out, active), "trap", ())
            return address, active
        return address, parts.compute("and.pred", is_inside, active)


def _is_plain(instruction: Instruction) -> bool:
    return instruction.type in _LOADED and _is_known(instruction, {"b", "v2", "v4"})


def _is_known(instruction: Instruction, known: set[str]) -> bool:
    modifiers = set(instruction.modifiers)
    geometry = geometry_of(instruction)
    beyond = modifiers & set(_BEYOND)
    if geometry not in _GEOMETRIES or len(beyond) != 1 or len(instruction.types) != 1:
        return False
    return modifiers <= {*known, geometry, *beyond} and len(modifiers & {"b", "p"}) == 1


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _name(opcode: str, instruction: Instruction) -> str:
    vector = [f"v{instruction.vector_size}"] if instruction.vector_size > 1 else []
    return ".".join((opcode, "global", *vector, instruction.type.value))
