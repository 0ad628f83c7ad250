"""Cellar. Leaks: things that a program has made and not ended, with the line that made them.

Things that cudasync's own objects made are no leaks: they are kept for the next use, or go with
their owners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from cudasync.softgpu.core.checks.findings import Access, Finding
from cudasync.softgpu.core.driver_types.call_sites import call_site, is_by_library
from cudasync.softgpu.core.driver_types.handles import Handles
from cudasync.softgpu.core.memory.allocation_table import AllocationTable, MemoryKind
from cudasync.softgpu.core.modules.modules import Module

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudasync.softgpu.core.machine import Machine
    from cudasync.softgpu.core.memory.allocation_table import Allocation

T = TypeVar("T")

# Memory that goes with its owner: a module, a texture object.
_NOT_ITS_OWN = (MemoryKind.VARIABLE, MemoryKind.OBJECT)


class NotedHandles(Handles[T]):
    """Handles that also know where each was made, during a check."""

    sites: dict[int, str]

    def add(self, handle: int, item: T) -> None:
        if not is_by_library():
            self.sites[handle] = call_site()
        super().add(handle, item)


class NotedAllocations(AllocationTable):
    """Allocations that also know whether an object of cudasync made them, during a check."""

    __slots__ = ()

    def _enter(self, *what: Any, live: bool) -> Allocation:
        made = super()._enter(*what, live=live)
        made.is_of_library = is_by_library()
        return made


class Leaks:
    """Finds the things made after its own creation that still exist."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._old = set(self._allocations())
        self._tables: dict[str, Handles[Any]] = {
            "a stream": machine.streams.streams,
            "an event": machine.streams.events,
            "a module": machine.modules.loaded,
            "a library": machine.modules.libraries,
            "a graph": machine.graphs.made,
            "a texture object": machine.objects.textures,
            "a surface object": machine.objects.surfaces,
            "an executable graph": machine.executables.made,
        }
        for memory in self._memories():
            memory.__class__ = NotedAllocations
        for table in self._tables.values():
            table.__class__ = NotedHandles
            table.sites = {}  # type: ignore[attr-defined]

    def findings(self) -> Iterator[Finding]:
        """One finding for each thing that is left."""
        for allocation in self._allocations():
            if not (allocation.is_of_library or allocation.is_freeing or allocation in self._old):
                access = Access(allocation.kind.value, "allocation", allocation.made_at)
                text = f"{allocation.size_bytes} bytes of {allocation.kind.value} are never freed"
                yield Finding(
                    "leak", text, [access], missing="missing: the call that frees the memory"
                )
        for what, table in self._tables.items():
            sites: dict[int, str] = table.sites  # type: ignore[attr-defined]
            for handle, site in sites.items():
                if handle in table.objects and not self._has_owner(table.objects[handle]):
                    access = Access(what, "creation", site)
                    text = f"{what} is never destroyed"
                    yield Finding(
                        "leak", text, [access], missing="missing: the call that destroys it"
                    )

    def _has_owner(self, item: object) -> bool:
        """True for a library's module, which ends with its library."""
        return isinstance(item, Module) and self._machine.modules.library_of(item) is not None

    def end(self) -> None:
        for table in self._tables.values():
            table.__class__ = Handles
        for memory in self._memories():
            memory.__class__ = AllocationTable

    def _memories(self) -> list[AllocationTable]:
        machine = self._machine
        return [*(device.memory for device in machine.devices), machine.host_memory]

    def _allocations(self) -> Iterator[Allocation]:
        for table in self._memories():
            for allocation in table.live():
                if allocation.kind not in _NOT_ITS_OWN and allocation.keeper is None:
                    yield allocation
