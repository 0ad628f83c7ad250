"""Cellar, core. Where a green context stands for a context: its handle, and what is current.

Both are looked at only where the ordinary way finds nothing, or something green is current: other
programs pay a test of an empty dict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.handles import Handles
from cudasync.softgpu.core.driver_types.result_codes import INVALID_CONTEXT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.green_contexts.contexts import GreenContext


class ContextStack(list["Context"]):
    """A thread's stack of contexts; `green` has the green ones, by how high each stands."""

    __slots__ = ("green",)

    def __init__(self) -> None:
        super().__init__()
        self.green: dict[int, GreenContext] = {}


class ContextHandles(Handles["Context"]):
    """Contexts by handle; that of a green context names the primary one."""

    def __init__(self, by_context: Mapping[int, GreenContext]) -> None:
        super().__init__("context", code=INVALID_CONTEXT)
        self._green = by_context

    def get(self, handle: int) -> Context:
        """The context; DriverFailure INVALID_CONTEXT if the handle names none."""
        green = self._green.get(handle)
        return super().get(handle) if green is None else green.primary
