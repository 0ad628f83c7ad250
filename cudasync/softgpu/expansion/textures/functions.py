"""Cellar. The functions that a module gets for its textures, parsed once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

from cudasync.ptx import parse
from cudasync.ptx.ir import Symbol
from cudasync.softgpu.expansion.textures.sampling import GATHER, blend, detail, fetch, sample
from cudasync.softgpu.expansion.textures.surfaces import PLACE
from cudasync.softgpu.expansion.textures.texels import AXIS, CUBE, INDEX, TEXEL
from cudasync.softgpu.semantics.memory_visibility import callees

if TYPE_CHECKING:
    from cudasync.ptx.ir import Function, Instruction, Operand

_HEAD: Final = ".version 6.0\n.target sm_50\n.address_size 64\n"


def name_of(function: str) -> str:
    """The name of a function in a module: no text can contain it."""
    return f"texture {function}"


def functions(wanted: dict[str, Instruction]) -> tuple[Function, ...]:
    """The functions of these names and the functions that they call.

    `wanted` has, by name without `name_of`, the first instruction that calls the function. A report
    of a fault names the place of that instruction.
    """
    found: dict[str, Function] = {}
    waiting = list(wanted.items())
    while waiting:
        name, place = waiting.pop()
        if name in found:
            continue
        function = _all()[name]
        waiting += [(each.removeprefix("texture "), place) for each in callees(function)]
        body = tuple(replace(each, span=place.span, text=place.text) for each in function.body)
        found[name] = replace(function, body=body, span=place.span)
    return tuple(found.values())


@cache
def _all() -> dict[str, Function]:
    parts = [TEXEL, AXIS, INDEX, CUBE, GATHER, PLACE]
    for count in (1, 2, 3):
        parts += [sample(count), blend(count), fetch(count), detail(count)]
    module = parse(_HEAD + "".join(parts))
    return {each.name: _renamed(each) for each in module.functions}


def _renamed(function: Function) -> Function:
    def meant(place: int, instruction: Instruction, operand: Operand) -> Operand:
        if instruction.opcode == "call" and place == 1 and isinstance(operand, Symbol):
            return Symbol(name_of(operand.name))
        return operand

    body = tuple(
        replace(
            each,
            operands=tuple(meant(place, each, part) for place, part in enumerate(each.operands)),
        )
        for each in function.body
    )
    return replace(function, name=name_of(function.name), body=body)
