"""Floor 0. What a kernel does to memory through each of its parameters.

For every parameter and every variable of the module: is it used as an address, and is what lies
there read, written, or both? The analysis takes no notice of the order of instructions: it lets
origins flow through registers, local and shared memory and calls until nothing changes, and
then looks at every access. It promises to err on one side only: what it calls READ is never
written through this parameter, and what it calls VALUE is never an address.

Two things can not be known from the text, and are the caller's to know: that two arguments
overlap, and that memory holds addresses which the host put there. A pointer that was loaded
and is then followed makes the parameter it was loaded through UNKNOWN. One thing is assumed: that a
product, a quotient or the like of a pointer is not turned into that pointer again and then used as
an alternative to another one; sizes are 64-bit numbers too, and what they are multiplied to is an
index. The promise is held against kernels that run (tests/softgpu/test_access_properties.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import TYPE_CHECKING

from cudasync.ptx.access_flow import GLOBAL, LOCAL, SHARED, Flow, Move, Step, is_pointer_like
from cudasync.ptx.access_steps import StepWriter
from cudasync.ptx.types import StateSpace

if TYPE_CHECKING:
    from cudasync.ptx.access_flow import MemoryAccess
    from cudasync.ptx.ir import Module


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
class KernelAccess:
    """What a kernel does through each parameter, and to each variable of its module.

    `symbols` has only the .global and .const variables that the kernel may touch.
    """

    parameters: tuple[Access, ...]
    symbols: dict[str, Access]


def analyse(module: Module, kernel_name: str) -> KernelAccess:
    """What the kernel called `kernel_name` does to memory; KeyError if there is none."""
    kernel = module.function(kernel_name)
    flow = Flow(module, kernel)
    done = 0
    while done < len(flow.reached):
        StepWriter(flow, flow.functions[flow.reached[done]]).write()
        done += 1
    _settle(flow)
    return _Marks(flow).result()


def _settle(flow: Flow) -> None:
    """Let origins flow until nothing changes. Sets only grow, so this ends.

    An address that still has no origin by then may be anything, and what is stored and loaded
    there flows again.
    """
    while True:
        while _pass(flow):
            pass
        nowhere = {each.address for each in flow.accesses if not flow.slots[each.address]}
        if not nowhere:
            return
        for slot in nowhere:
            flow.slots[slot] = flow.origins.any


def _pass(flow: Flow) -> bool:
    slots = flow.slots
    changed = False
    for step in flow.steps:
        found = _result(flow, step)
        for target in step.targets:
            if found & ~slots[target]:
                slots[target] |= found
                changed = True
    for access in flow.accesses:
        if access.stored:
            changed = _store(flow, access) or changed
    return changed


def _result(flow: Flow, step: Step) -> int:
    origins = flow.origins
    found = 0
    for source in step.sources:
        found |= flow.slots[source]
    match step.move:
        case Move.SAME:
            return found
        case Move.INDEX:
            return origins.as_index(found)
        case Move.HIGH_HALF:
            return origins.as_high_half(found)
    loaded = _contents(flow, found, is_generic=step.move is Move.LOAD)
    return origins.as_index(loaded) if step.is_narrow else loaded


def _contents(flow: Flow, address: int, *, is_generic: bool) -> int:
    """What memory at `address` may hold."""
    if not address:
        return 0
    origins = flow.origins
    cells, elsewhere = origins.split_cells(address)
    found = 0
    for cell in _reachable_cells(flow, address, is_generic=is_generic):
        found |= flow.slots[flow.cell_slots[cell]]
    if not cells or elsewhere & origins.base:
        found |= origins.as_loaded(elsewhere)
        for origin, addresses in flow.initial.items():
            through = origins.direct_bit(origin) | origins.loaded | origins.any
            if elsewhere & through:
                found |= addresses
    return found


def _reachable_cells(flow: Flow, address: int, *, is_generic: bool) -> list[int]:
    """The cells that an access at `address` may meet."""
    origins = flow.origins
    cells, elsewhere = origins.split_cells(address)
    if not cells or elsewhere & origins.base:
        cells.append(GLOBAL)
    if is_generic and (elsewhere & (origins.any | origins.loaded) or not address & origins.base):
        cells += [LOCAL, SHARED]
    return cells


def _store(flow: Flow, access: MemoryAccess) -> bool:
    """Add what is stored to what may lie there; True if that is news."""
    address = flow.slots[access.address]
    if not address:
        return False
    stored = 0
    for slot in access.stored:
        stored |= flow.slots[slot]
    changed = False
    for cell in _reachable_cells(flow, address, is_generic=access.is_generic):
        slot = flow.cell_slots[cell]
        if stored & ~flow.slots[slot]:
            flow.slots[slot] |= stored
            changed = True
    return changed


class _Marks:
    """The verdict on each origin, from the settled flow."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        parameters = flow.kernel.parameters
        # Origins of which any address could come.
        self._candidates = [
            index for index, each in enumerate(parameters) if is_pointer_like(each)
        ] + [len(parameters) + index for index in range(len(flow.symbols))]
        self._read = self._written = self._unknown = 0

    def result(self) -> KernelAccess:
        flow = self._flow
        for access in flow.accesses:
            self._access(access)
        for slot in flow.lost:
            self._lose(flow.slots[slot])
        for slot in flow.printed:
            self._read |= self._touched(flow.slots[slot])
        if flow.calls_out:
            for index in range(len(flow.symbols)):
                self._unknown |= 1 << (len(flow.kernel.parameters) + index)
        count = len(flow.kernel.parameters)
        symbols: dict[str, Access] = {}
        for index, name in enumerate(flow.symbols):
            verdict = self._verdict(count + index)
            if verdict is not Access.VALUE:
                is_constant = flow.variables[name].space is StateSpace.CONST
                symbols[name] = Access.READ if is_constant else verdict
        return KernelAccess(tuple(self._verdict(index) for index in range(count)), symbols)

    def _access(self, access: MemoryAccess) -> None:
        flow, origins = self._flow, self._flow.origins
        address = flow.slots[access.address]
        touched = self._touched(address)
        if access.reads:
            self._read |= touched
        if access.writes:
            self._written |= touched
        self._lose(address & (origins.loaded | origins.any))
        if not address & origins.base:
            # Numbers alone make no address, so one of them was a pointer, or it came from nowhere.
            self._lose(origins.as_loaded(address) | origins.any)
        if GLOBAL in _reachable_cells(flow, address, is_generic=access.is_generic):
            # Whoever finds the address there may use it, in this kernel or in a later one.
            for slot in access.stored:
                self._lose(flow.slots[slot] & origins.direct)

    def _touched(self, address: int) -> int:
        """The origins whose addresses `address` may be, a bit for each."""
        touched = 0
        for origin in self._flow.origins.which(address & self._flow.origins.direct):
            touched |= 1 << origin
        return touched

    def _lose(self, values: int) -> None:
        """Every origin of `values` may be used in any way."""
        origins = self._flow.origins
        if values & origins.any:
            for origin in self._candidates:
                self._unknown |= 1 << origin
        for origin in origins.which(values & (origins.direct | origins.loaded)):
            self._unknown |= 1 << origin

    def _verdict(self, origin: int) -> Access:
        bit = 1 << origin
        if self._unknown & bit:
            return Access.UNKNOWN
        if self._read & bit:
            return Access.READ_WRITE if self._written & bit else Access.READ
        return Access.WRITE if self._written & bit else Access.VALUE
