"""Cellar, jit. Finds the arguments and results that calls pass as vectors of a warp.

A .param variable lies in each thread's own memory, so a warp would store and load it lane by lane.
A variable that holds one scalar, and is only stored before one call or only loaded behind it, needs
no place in memory. Its values lie side by side on the host's stack while the call lasts.

Both sides must agree: a parameter is passed so if the function only loads it by its name, and every
call of the function has such a variable for it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.ir import Address, Symbol, Vector
from cudasync.ptx.types import StateSpace
from cudasync.softgpu.semantics.memory_visibility import callee

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cudasync.ptx.ir import Function, Instruction, Variable

_LARGEST = 8
_PLACES = {"ld": 1, "st": 0}


@dataclass(frozen=True, slots=True)
class _Site:
    """One call: the positions of its stores, the call and its loads, and the names it passes."""

    callee: str
    positions: range
    names: tuple[str, ...]
    passable: frozenset[str]


def passed_values(parts: Sequence[Function]) -> dict[str, frozenset[str]]:
    """For each function, the variables, parameters and results that are passed as vectors."""
    functions = {each.name: each for each in parts if not each.is_kernel}
    sites = {each.name: list(_sites(each, functions)) for each in parts}
    plain = {name: _plain(each, _given(each)) for name, each in functions.items()}
    refused = {
        (site.callee, number)
        for found in sites.values()
        for site in found
        for number, name in enumerate(site.names)
        if name not in site.passable
    }
    passed = {
        name: {
            variable.name
            for number, variable in enumerate(_given(each))
            if variable.name in plain[name] and (name, number) not in refused
        }
        for name, each in functions.items()
    }
    agreed = {each.name: set(passed.get(each.name, ())) for each in parts}
    for caller, found in sites.items():
        for site in found:
            given = _given(functions[site.callee])
            agreed[caller] |= {
                name
                for name, variable in zip(site.names, given, strict=True)
                if variable.name in passed[site.callee]
            }
    return {name: frozenset(each) for name, each in agreed.items()}


def kept_together(function: Function) -> frozenset[int]:
    """Positions within a call's stores and loads: no node may begin there."""
    calls = (n for n, each in enumerate(function.body) if each.opcode == "call")
    return frozenset(place for n in calls for place in _around(function, n)[1:])


def _given(function: Function) -> tuple[Variable, ...]:
    """Parameters and results, in the order in which a call passes them."""
    return (*function.parameters, *function.results)


def _sites(function: Function, functions: Mapping[str, Function]) -> Iterator[_Site]:
    uses = Counter(name for each in function.body for name in _names(each))
    own = {each.name: each for each in function.variables if each.space is StateSpace.PARAM}
    for position, instruction in enumerate(function.body):
        known = functions.get(callee(instruction) or "")
        if known is None:
            continue
        names = tuple(_passed_names(instruction))
        given = _given(known)
        if len(names) != len(given):
            continue  # The lowering refuses this call.
        positions = _around(function, position)
        within = Counter(name for place in positions for name in _names(function.body[place]))
        alike = {
            name
            for name, variable in zip(names, given, strict=True)
            if name in own and own[name].size == variable.size and names.count(name) == 1
        }
        # A result is what the function leaves there.
        stored = {_whole(function.body[place]) for place in range(positions.start, position)}
        alike -= stored & set(names[len(known.parameters) :])
        inside = [own[name] for name in alike if within[name] == uses[name]]
        accesses = [function.body[place] for place in positions if place != position]
        yield _Site(known.name, positions, names, _scalars(inside, accesses))


def _around(function: Function, position: int) -> range:
    """The stores directly before a call and the loads directly behind, under the call's guard."""
    body, labels = function.body, set(function.labels.values())
    guard = body[position].guard
    first = position
    while first and first not in labels and _is_argument(body[first - 1], "st", guard):
        first -= 1
    end = position + 1
    while end < len(body) and end not in labels and _is_argument(body[end], "ld", guard):
        end += 1
    return range(first, end)


def _is_argument(instruction: Instruction, opcode: str, guard: object) -> bool:
    return (
        instruction.opcode == opcode
        and instruction.space is StateSpace.PARAM
        and instruction.guard == guard
    )


def _plain(function: Function, variables: Sequence[Variable]) -> frozenset[str]:
    """Those of the variables that are only loaded and stored whole, by their names."""
    return _scalars(variables, function.body)


def _scalars(variables: Iterable[Variable], body: Iterable[Instruction]) -> frozenset[str]:
    """Those of the variables that are scalars, which `body` names only to load or store them."""
    sizes = {each.name: each.size for each in variables if each.count == 1}
    found = {name for name, size in sizes.items() if size <= _LARGEST}
    for instruction in body:
        whole = _whole(instruction)
        found -= {
            name
            for name in _names(instruction)
            if name != whole or instruction.type.size != sizes.get(name)
        }
    return frozenset(found)


def _whole(instruction: Instruction) -> str | None:
    """The variable that a ld.param or st.param of one scalar accesses from its start."""
    place = _PLACES.get(instruction.opcode)
    if place is None or instruction.space is not StateSpace.PARAM or instruction.vector_size > 1:
        return None
    match instruction.operands[place]:
        case Address(base=Symbol(name=name, offset=0), offset=0):
            return name
    return None


def _passed_names(call: Instruction) -> Iterator[str]:
    results, _, arguments = call.operands[:3]
    for operands in (arguments, results):
        yield from _symbols(operands)


def _names(instruction: Instruction) -> Iterator[str]:
    """Every symbol that an instruction names, as often as it does."""
    for operand in instruction.operands:
        yield from _symbols(operand)


def _symbols(operand: object) -> Iterator[str]:
    match operand:
        case Symbol(name=name):
            yield name
        case Address(base=base):
            yield from _symbols(base)
        case Vector(elements=elements):
            for each in elements:
                yield from _symbols(each)
