"""Cellar. tex, tld4, and queries of textures and surfaces become calls and loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.ptx.ir import Address, Float, Integer, Symbol, Vector
from cudasync.ptx.types import ScalarType
from cudasync.softgpu.expansion.textures.functions import name_of
from cudasync.softgpu.expansion.textures.operands import (
    enter,
    field,
    geometry_of,
    layer_of,
    place_of,
)
from cudasync.softgpu.interface.texture_layout import SURFACE, TEXTURE, Field, Level

if TYPE_CHECKING:
    from cudasync.ptx.ir import Instruction, Module, Operand, Register
    from cudasync.softgpu.expansion.rewriter import Parts
    from cudasync.softgpu.expansion.textures.operands import Place

T = ScalarType
_ZERO: Final = Integer(0)
_RESULT_TYPES: Final = (T.F32, T.S32, T.U32)
_HOW: Final = frozenset({"level", "grad"})
_CHANNELS: Final = "rgba"
_OF_LEVEL: Final = {"width": Level.WIDTH, "height": Level.HEIGHT, "depth": Level.DEPTH}
_OF_OBJECT: Final = {"array_size": Field.ARRAY_SIZE, "normalized_coords": Field.IS_NORMALISED}


class Fetches:
    """Rewrites the fetches of one module, and collects the functions that they call."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self.wanted: dict[str, Instruction] = {}

    def fetch(self, parts: Parts, instruction: Instruction) -> bool:
        """Rewrite tex: of one level, by a level of detail, or by gradients."""
        how = set(instruction.modifiers) & _HOW
        geometry = geometry_of(instruction)
        if geometry is None or not self._is_known(instruction, {*_HOW, "base", geometry}, how):
            return False
        type_ = instruction.type
        place = place_of(instruction.operands[1], geometry)
        results = instruction.operands[0]
        if place is None or not isinstance(results, Vector) or len(results.elements) != 4:
            return False
        if type_ is T.S32 and ("grad" in how or "cube" in geometry):
            return False
        handle = enter(parts, self._module, place.handle, TEXTURE)
        if handle is None:
            return False
        more = instruction.operands[2:]
        if type_ is T.S32:
            level = self._level(parts, handle, more[0] if how else None)
            found = self._texel(parts, handle, level, place)
        else:
            found = self._filtered(parts, handle, geometry, place, more)
        for target, result in zip(results.elements, found, strict=True):
            parts.write(target, result, T.B32)
        return True

    @staticmethod
    def _is_known(instruction: Instruction, known: set[str], how: set[str]) -> bool:
        types = instruction.types
        if len(types) != 2 or types[0] not in _RESULT_TYPES or types[1] not in (T.F32, T.S32):
            return False
        counts = 2 + ("level" in how) + 2 * ("grad" in how)
        is_known = set(instruction.modifiers) <= {*known, "v4"}
        return is_known and len(how) < 2 and len(instruction.operands) == counts

    def _call(
        self, parts: Parts, function: str, types: tuple[T, ...], *arguments: Operand
    ) -> list[Register]:
        self.wanted.setdefault(function, parts.whole)
        results = [parts.register(each) for each in types]
        parts.settle("call", Vector(tuple(results)), Symbol(name_of(function)), Vector(arguments))
        return results

    def _level(self, parts: Parts, handle: Register, number: Operand | None) -> Register:
        first = parts.compute("add.u64", handle, Integer(Field.LEVELS))
        if number is None:
            return first
        last = field(parts, handle, Field.LAST_LEVEL)
        least = parts.compute("max.s32", number, _ZERO)
        within = parts.compute("min.s32", least, last)
        return parts.compute("mad.wide.u32", within, Integer(Level.SIZE), first, type_=T.B64)

    def _slice(self, parts: Parts, handle: Register, place: Place) -> list[Operand]:
        if place.layer is not None:
            return [layer_of(parts, handle, place.layer)]
        return [_ZERO] if len(place.coordinates) < 3 else []

    def _texel(
        self, parts: Parts, handle: Register, level: Register, place: Place
    ) -> list[Register]:
        name = f"fetch{len(place.coordinates)}"
        slice_ = self._slice(parts, handle, place)
        return self._call(parts, name, (T.B32,) * 4, handle, level, *place.coordinates, *slice_)

    def _filtered(
        self,
        parts: Parts,
        handle: Register,
        geometry: str,
        place: Place,
        more: tuple[Operand, ...],
    ) -> list[Register]:
        where: list[Operand]
        if "cube" in geometry:
            where = self._face(parts, handle, place)
        else:
            where = [*place.coordinates, *self._slice(parts, handle, place)]
        count = 2 if "cube" in geometry else len(place.coordinates)
        if not more:
            level = self._level(parts, handle, None)
            return self._call(parts, f"sample{count}", (T.B32,) * 4, handle, level, *where)
        detail: Operand = more[0]
        if len(more) == 2:
            if "cube" in geometry:
                # The mapping from gradients of directions to those of a face is undocumented.
                detail = Float(0, T.F32)
            else:
                slopes = [_leading(each, count) for each in more]
                (detail,) = self._call(
                    parts, f"detail{count}", (T.F32,), handle, *slopes[0], *slopes[1]
                )
        return self._call(parts, f"blend{count}", (T.B32,) * 4, handle, detail, *where)

    def _face(self, parts: Parts, handle: Register, place: Place) -> list[Operand]:
        face, s, t = self._call(parts, "cube", (T.B32, T.F32, T.F32), *place.coordinates)
        if place.layer is None:
            return [s, t, face]
        cube = layer_of(parts, handle, place.layer)
        return [s, t, parts.compute("mad.lo.u32", cube, Integer(6), face)]

    def gather(self, parts: Parts, instruction: Instruction) -> bool:
        """Rewrite tld4: one channel of the four texels that a linear fetch would filter."""
        geometry = geometry_of(instruction)
        channels = [each for each in instruction.modifiers if each in _CHANNELS]
        if geometry not in ("2d", "a2d") or len(channels) != 1:
            return False
        if not self._is_known(instruction, {geometry, *channels}, set()):
            return False
        place, results = place_of(instruction.operands[1], geometry), instruction.operands[0]
        if place is None or not isinstance(results, Vector) or instruction.type is not T.F32:
            return False
        handle = enter(parts, self._module, place.handle, TEXTURE)
        if handle is None:
            return False
        where = (*place.coordinates, *self._slice(parts, handle, place))
        channel = Integer(_CHANNELS.index(channels[0]))
        level = self._level(parts, handle, None)
        found = self._call(parts, "gather", (T.B32,) * 4, handle, level, *where, channel)
        for target, result in zip(results.elements, found, strict=True):
            parts.write(target, result, T.B32)
        return True

    def query(self, parts: Parts, instruction: Instruction) -> bool:
        """Rewrite txq and suq: a word of the object."""
        asked = [each for each in instruction.modifiers if each != "level"]
        has_level = "level" in instruction.modifiers
        address = instruction.operands[1]
        if len(asked) != 1 or not isinstance(address, Address) or address.offset:
            return False
        if len(instruction.operands) != 2 + has_level or instruction.type is not T.B32:
            return False
        (what,) = asked
        is_texture = instruction.opcode == "txq"
        known = {**_OF_LEVEL, "array_size": 0}
        if is_texture:
            known |= {**_OF_OBJECT, "num_mipmap_levels": 0}
        if what not in known:
            return False
        handle = enter(parts, self._module, address, TEXTURE if is_texture else SURFACE)
        if handle is None:
            return False
        if what in _OF_LEVEL:
            level = self._level(parts, handle, instruction.operands[2] if has_level else None)
            found = field(parts, level, _OF_LEVEL[what])
        elif what in _OF_OBJECT:
            found = field(parts, handle, _OF_OBJECT[what])
        else:
            last = field(parts, handle, Field.LAST_LEVEL)
            found = parts.compute("add.u32", last, Integer(1))
        parts.write(instruction.operands[0], found, T.B32)
        return True


def _leading(operand: Operand, count: int) -> tuple[Operand, ...]:
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    return elements[:count]
