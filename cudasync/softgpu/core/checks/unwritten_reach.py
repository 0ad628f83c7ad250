"""Cellar. The unwritten global memory that a launch may touch, from its PTX and its arguments.

The access analysis (`ptx.access`) says which words of the parameters are addresses, and whether the
kernel reads or writes there. A launch that can reach no unwritten memory needs no record of its
accesses. If it may only write there, its loads need none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from cudasync.ptx.access_analysis.accesses import analyse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.ptx.access_analysis.accesses import KernelAccess
    from cudasync.softgpu.core.launch.kernel_launch import KernelLaunch
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.modules.modules import Function

# The memory of an object is named by no argument.
_BY_HANDLE: Final = frozenset({"tex", "tld4", "suld", "sust", "sured"})
_ADDRESS_BYTES: Final = 8


class Needed(NamedTuple):
    """The ranges of unwritten memory that a launch may touch, and whether it may read them."""

    ranges: list[tuple[int, int]]
    reads: bool


class Pointer(NamedTuple):
    """The place of an address in the block of parameters, and what the kernel does there."""

    offset: int
    reads: bool
    writes: bool


class UnwrittenReach:
    """What launches may touch; the analysis of a kernel is made once."""

    def __init__(self, find: Callable[[int], Allocation | None]) -> None:
        """`find` returns the allocation that contains or begins at an address."""
        self._find = find
        # None: the kernel may reach any memory.
        self._known: dict[Function, list[Pointer] | None] = {}

    def needed(self, command: KernelLaunch, unwritten: list[tuple[int, int]]) -> Needed:
        """What must be watched of a launch, if these ranges have unwritten bytes."""
        everything = Needed(unwritten, reads=True)
        if not unwritten:
            return Needed([], reads=False)
        function = command.function
        if function not in self._known:
            self._known[function] = _pointers(function)
        pointers = self._known[function]
        if pointers is None:
            return everything
        touched, reads = set(), False
        for each in pointers:
            place = each.offset
            word = command.parameters[place : place + _ADDRESS_BYTES]
            address = int.from_bytes(word, "little")
            if not address:
                continue
            reached = list(self._reached(address))
            if not reached:
                return everything
            met = [
                (start, end)
                for start, end in unwritten
                if any(start < of.end and of.start < end for of in reached)
            ]
            touched.update(met)
            reads = reads or (each.reads and bool(met))
        return Needed(sorted(touched), reads)

    def _reached(self, address: int) -> Iterator[Allocation]:
        """The allocations that an argument may stand for: it may be the end of one."""
        for each in (self._find(address), self._find(address - 1)):
            if each is not None:
                yield each


def _pointers(function: Function) -> list[Pointer] | None:
    module, kernel = function.module.source, function.kernel
    if any(each.opcode in _BY_HANDLE for of in module.functions for each in of.body):
        return None
    found: KernelAccess = analyse(module, function.name)
    if found.beyond:
        return None
    return [
        Pointer(start + each.offset, each.access.reads, each.access.writes)
        for start, fields in zip(kernel.parameter_offsets, found.fields, strict=True)
        for each in fields
    ]
