"""Cellar. Stream-ordered memory: the commands that allocate and free it.

The address is known from the call on. Before the allocating command and after the freeing one, an
access from any stream is a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.streams.commands import Command, Step, Touched

if TYPE_CHECKING:
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.memory.memory_manager import MemoryManager
    from cudasync.softgpu.core.streams.streams import Stream


class Appear(Command):
    """The stream-ordered allocation: its memory becomes live."""

    __slots__ = ("allocation", "manager")

    is_access = False

    def __init__(self, stream: Stream, manager: MemoryManager, allocation: Allocation) -> None:
        super().__init__(stream)
        self.manager = manager
        self.allocation = allocation

    def run(self) -> Step:
        self.manager.make_live(self.allocation)
        return Step.DONE

    def touched(self) -> Touched:
        return Touched((), [(self.allocation.start, self.allocation.end)])

    def describe(self) -> str:
        return f"an allocation of {self.allocation.size_bytes} bytes"


class Vanish(Command):
    """The stream-ordered free: its memory is gone."""

    __slots__ = ("allocation", "manager")

    is_access = False

    def __init__(self, stream: Stream, manager: MemoryManager, allocation: Allocation) -> None:
        super().__init__(stream)
        self.manager = manager
        self.allocation = allocation

    def run(self) -> Step:
        self.manager.vanish(self)
        return Step.DONE

    def dropped(self) -> None:
        self.manager.drop(self)

    def touched(self) -> Touched:
        return Touched((), [(self.allocation.start, self.allocation.end)])

    def describe(self) -> str:
        return f"a free of {self.allocation.size_bytes} bytes"
