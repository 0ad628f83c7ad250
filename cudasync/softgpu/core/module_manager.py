"""Cellar. What can be done with modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.machine import Machine


class ModuleManager:
    """All modules of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def forget(self, context: Context) -> None:
        """Drop the modules of a context that ends."""
        context.modules.clear()
