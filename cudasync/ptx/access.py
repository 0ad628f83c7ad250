"""Floor 0. What a kernel does to memory through each of its parameters.

For every parameter and every variable of the module: is it used as an address, and is what lies
there read, written, or both? A struct is told word by word. The analysis takes no notice of the
order of instructions: it lets origins flow through registers, local and shared memory and calls
until nothing changes, and then looks at every access. It promises to err on one side only: what it
calls READ is never written through this parameter, and what it calls VALUE is never an address.

An address may also come from memory, from code that is not here, or from nowhere that is known. The
kernel then goes `beyond` its parameters, and nothing is promised of what it reaches so. A parameter
through which such a pointer was loaded is UNKNOWN, and so is one whose address is kept in memory.

That two arguments overlap can not be known from the text, and is the caller's to know. Two things
are assumed:
- a product, a quotient or the like of a pointer, or a pointer that was moved up by less than 16
  bits, is not turned into that pointer again and then used as an alternative to another one. Sizes
  are 64-bit numbers too, and what they are multiplied to is an index;
- the lower 32 bits of an address are an index within what its upper 32 bits come from. See
  `access_origins`, which argues why pieces of pointers are told from pointers so.

The promise is held against kernels that run (tests/softgpu/lowerings/test_access_properties.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import TYPE_CHECKING

from cudasync.ptx.access_flow import GLOBAL, Flow
from cudasync.ptx.access_settling import reachable_cells, settle
from cudasync.ptx.access_steps import StepWriter
from cudasync.ptx.element_types import element_types
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudasync.ptx.access_flow import MemoryAccess
    from cudasync.ptx.ir import Module
    from cudasync.ptx.types import ScalarType


@unique
class Access(Enum):
    """What a kernel may do to memory through a parameter."""

    VALUE = "never used as an address"
    READ = "read"
    WRITE = "written"
    READ_WRITE = "read and written"
    UNKNOWN = "used in a way that can not be followed: may be read and written"

    @property
    def reads(self) -> bool:
        return self in (Access.READ, Access.READ_WRITE, Access.UNKNOWN)

    @property
    def writes(self) -> bool:
        return self in (Access.WRITE, Access.READ_WRITE, Access.UNKNOWN)


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

    `symbols` has only the .global and .const variables that the kernel may touch. `reasons` tells
    of each parameter why, `fields` which of its words are addresses (a struct may have several).
    `beyond` says why the kernel may reach memory that none of these leads to; "" if it can not.
    `elements` has the floating type that the memory behind each parameter is shown to have, None
    where none is.
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
        # Origins of which any address could come.
        self._candidates = [place for place, each in enumerate(flow.known) if each.is_pointer_like]
        # By origin: the first line of each kind, or why it is not known.
        self._read: dict[int, int] = {}
        self._written: dict[int, int] = {}
        self._unknown: dict[int, str] = {}
        # Origins whose addresses are stored, and in which line.
        self._kept: dict[int, int] = {}
        self._beyond = list(flow.beyond)

    def result(self) -> KernelAccess:
        flow = self._flow
        if flow.beyond:
            # Code that is not here may touch every variable.
            for place, origin in enumerate(flow.known):
                if origin.parameter is None:
                    self._unknown.setdefault(place, flow.beyond[0])
        for access in flow.accesses:
            self._access(access)
        for slot, line in flow.lost:
            self._lose(flow.slots[slot], f"used by what can not be followed, line {line}")
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
            self._beyond.append(f"a pointer put together of numbers like `{name}`, line {line}")
        if GLOBAL in reachable_cells(flow, address, is_generic=access.is_generic):
            # Whoever finds the address there may use it, in this kernel or in a later one.
            for slot in access.stored:
                stored = flow.slots[slot]
                for place in self._touched(stored | stored >> 2):
                    self._kept.setdefault(place, line)

    def _follow(self, address: int, line: int) -> None:
        """Where `address` may be one that was not given: who reaches that, and through whom."""
        origins = self._flow.origins
        if address & origins.any:
            why = f"an address that can not be traced, line {line}"
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
            self._beyond.append(f"a string whose pointer is printed in line {line}")

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
    """What is done through any of these."""
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
