"""Cellar. Stream-ordered memory: the commands at which it comes into being and is gone.

Its address is known from the call on; before the one command and after the other, an access
from any stream is a fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.streams.commands import Command, Step, Touched

if TYPE_CHECKING:
    from cudasync.softgpu.core.memory.allocation_table import Allocation
    from cudasync.softgpu.core.memory.memory_manager import MemoryManager
    from cudasync.softgpu.core.streams.streams import Stream


class Appear(Command):
    """The moment at which stream-ordered memory comes into being."""

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
    """The moment at which stream-ordered memory is gone."""

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
