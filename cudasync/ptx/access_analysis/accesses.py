"""Floor 0. Access analysis: what a kernel does to memory through each of its parameters.

For every parameter and every variable of the module, the analysis answers: is it used as an
address, and is the memory there read, written, or both? It answers for each word of a struct. It
ignores the order of instructions. Origins flow through registers, local and shared memory and
calls until nothing changes. Then it looks at every access. It errs on one side only: memory that it
calls READ is never written through this parameter, and a VALUE is never an address.

An address may also come from memory, from code outside the module, or from an unknown place. The
kernel then goes `beyond` its parameters, and the analysis promises nothing of the memory that it
reaches there. A parameter through which such a pointer was loaded is UNKNOWN, and so is a parameter
whose address is stored in memory.

The text does not show whether two arguments overlap: the caller must know. The analysis assumes
two things:
- A product, a quotient or the like of a pointer, or a pointer shifted up by less than 16 bits, is
  never turned back into an alternative to another pointer. Sizes are 64-bit numbers too, and a
  product with a size is an index.
- The lower 32 bits of an address are an index within the object that its upper 32 bits come from.
  `origins` argues why pieces of pointers are distinguished from pointers in this way.

Tests check the promise on kernels that run (tests/softgpu/lowerings/test_access_properties.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudasync.ptx.access_analysis.fixed_point import reachable_cells, settle
from cudasync.ptx.access_analysis.flow_graph import GLOBAL, Flow
from cudasync.ptx.access_analysis.transfer_functions import StepWriter
from cudasync.ptx.element_types import element_types
from cudasync.ptx.types import Access, StateSpace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudasync.ptx.access_analysis.flow_graph import MemoryAccess
    from cudasync.ptx.ir import Module
    from cudasync.ptx.types import ScalarType


@dataclass(frozen=True, slots=True)
class FieldAccess:
    """What a kernel does through the word at byte `offset` of a parameter.

    `is_only_kept`: its address is stored, but not used by the kernel itself.
    """

    offset: int
    access: Access
    reason: str
    is_only_kept: bool = False


@dataclass(frozen=True, slots=True)
class KernelAccess:
    """What a kernel does through each parameter, and to each variable of its module.

    `symbols` has only the .global and .const variables that the kernel may touch. `reasons` says
    why, for each parameter. `fields` says which of its words are addresses (a struct may have
    several). `beyond` says why the kernel may reach memory that none of these leads to; "" if it
    cannot. `elements` has the type that the kernel shows for the memory behind each parameter (see
    `element_types`), or None.
    """

    parameters: tuple[Access, ...]
    symbols: dict[str, Access]
    reasons: tuple[str, ...]
    fields: tuple[tuple[FieldAccess, ...], ...]
    beyond: str
    elements: tuple[ScalarType | None, ...]


def analyse(module: Module, kernel_name: str) -> KernelAccess:
    """What the kernel called `kernel_name` does to memory; KeyError if there is none."""
    kernel = module.function(kernel_name)
    flow = Flow(module, kernel)
    done = 0
    while done < len(flow.reached):
        StepWriter(flow, flow.functions[flow.reached[done]]).write()
        done += 1
    settle(flow)
    return _Marks(flow).result()


class _Marks:
    """The verdict on each origin, from the settled flow."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        # Places of the origins that may be an address.
        self._candidates = [place for place, each in enumerate(flow.known) if each.is_pointer_like]
        # By origin: the first line of each kind of access, or why the access is not known.
        self._read: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._unknown: dict[int, str] = {}
        # Origins whose addresses are stored, and the line.
        self._kept: dict[int, int] = {}
        self._beyond = list(flow.beyond)

    def result(self) -> KernelAccess:
        flow = self._flow
        if flow.beyond:
            # Code outside the module may touch every variable.
            for place, origin in enumerate(flow.known):
                if origin.parameter is None:
                    self._unknown.setdefault(place, flow.beyond[0])
        for access in flow.accesses:
            self._access(access)
        for slot, line in flow.lost:
            self._lose(flow.slots[slot], f"used by an untraceable instruction, line {line}")
        for slot, line in flow.printed:
            self._print(flow.slots[slot], line)
        return self._told()

    def _told(self) -> KernelAccess:
        flow = self._flow
        symbols: dict[str, Access] = {}
        fields: list[list[FieldAccess]] = [[] for _ in flow.kernel.parameters]
        for place, origin in enumerate(flow.known):
            access, reason = self._verdict(place)
            is_only_kept = not self._is_used(place)
            if origin.parameter is not None:
                fields[origin.parameter].append(
                    FieldAccess(origin.offset, access, reason, is_only_kept)
                )
            elif access is not Access.VALUE:
                is_constant = flow.variables[origin.name].space is StateSpace.CONST
                symbols[origin.name] = Access.READ if is_constant else access
        used = [[each for each in of if each.access is not Access.VALUE] for of in fields]
        arrays = [each.is_array for each in flow.kernel.parameters]
        accesses = tuple(_union(each) for each in used)
        elements = (
            None if access is Access.UNKNOWN else element
            for access, element in zip(accesses, element_types(flow), strict=True)
        )
        return KernelAccess(
            accesses,
            symbols,
            tuple(_reasons(*each) for each in zip(used, arrays, strict=True)),
            tuple(map(tuple, used)),
            self._beyond[0] if self._beyond else "",
            tuple(elements),
        )

    def _access(self, access: MemoryAccess) -> None:
        flow, origins, line = self._flow, self._flow.origins, access.line
        address = flow.slots[access.address]
        touched = list(self._touched(address))
        for place in touched:
            if access.reads:
                self._read.setdefault(place, line)
            if access.writes:
                self._written.setdefault(place, line)
        self._follow(address, line)
        made = [each for each in origins.which(address & origins.direct) if each not in touched]
        if made:
            name = flow.known[made[0]].name
            self._beyond.append(f"a pointer composed of numbers like `{name}`, line {line}")
        if GLOBAL in reachable_cells(flow, address, is_generic=access.is_generic):
            # Any code that finds the address there may use it, in this kernel or in a later one.
            for slot in access.stored:
                stored = flow.slots[slot]
                for place in self._touched(stored | stored >> 2):
                    self._kept.setdefault(place, line)

    def _follow(self, address: int, line: int) -> None:
        """If `address` may be a pointer that was not an argument: lose its origins, and say why."""
        origins = self._flow.origins
        if address & origins.any:
            why = f"an address that cannot be traced, line {line}"
        elif address & origins.loaded:
            why = f"a pointer from memory, followed in line {line}"
        else:
            return
        self._beyond.append(why)
        self._lose(address & (origins.loaded | origins.any), why)

    def _print(self, values: int, line: int) -> None:
        for place in self._touched(values):
            self._read.setdefault(place, line)
        origins = self._flow.origins
        if values & (origins.loaded | origins.any) and self._flow.prints_strings:
            self._beyond.append(f"a string that printf prints in line {line}")

    def _touched(self, address: int) -> Iterator[int]:
        """The origins whose addresses `address` may be."""
        origins, known = self._flow.origins, self._flow.known
        found = origins.which(address & origins.direct)
        return (place for place in found if known[place].is_pointer_like)

    def _lose(self, values: int, why: str) -> None:
        """Every origin of `values` may be used in any way."""
        origins, known = self._flow.origins, self._flow.known
        if values & origins.any:
            for origin in self._candidates:
                self._unknown.setdefault(origin, why)
        for origin in origins.which(values & (origins.direct | origins.loaded)):
            if known[origin].is_pointer_like:
                self._unknown.setdefault(origin, why)
        if values & (origins.loaded | origins.any):
            self._beyond.append(why)

    def _is_used(self, origin: int) -> bool:
        return origin in self._read or origin in self._written or origin in self._unknown

    def _verdict(self, origin: int) -> tuple[Access, str]:
        if origin in self._unknown:
            return Access.UNKNOWN, self._unknown[origin]
        if origin in self._kept:
            return Access.UNKNOWN, f"its address is stored in line {self._kept[origin]}"
        read, written = self._read.get(origin), self._written.get(origin)
        if read is not None and written is not None:
            return Access.READ_WRITE, f"read in line {read}, written in line {written}"
        if read is not None:
            return Access.READ, f"read in line {read}"
        if written is not None:
            return Access.WRITE, f"written in line {written}"
        return Access.VALUE, Access.VALUE.value


def _union(fields: list[FieldAccess]) -> Access:
    """The access through all of these fields together."""
    kinds = {each.access for each in fields}
    if not kinds:
        return Access.VALUE
    if len(kinds) == 1:
        return kinds.pop()
    return Access.UNKNOWN if Access.UNKNOWN in kinds else Access.READ_WRITE


def _reasons(fields: list[FieldAccess], is_array: bool) -> str:
    if not fields:
        return Access.VALUE.value
    if not is_array:
        return fields[0].reason
    return "; ".join(f"address at byte {each.offset}: {each.reason}" for each in fields)
