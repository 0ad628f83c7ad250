"""Cellar, core. Green contexts in place of contexts: by handle, and as the current context.

Programs without green contexts only pay for a test of an empty dict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.handles import Handles
from cudasync.softgpu.core.driver_types.result_codes import INVALID_CONTEXT

if TYPE_CHECKING:
    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.green_contexts.contexts import GreenContext


class ContextStack(list["Context"]):
    """A thread's stack of contexts; `green` has the green contexts, by their height in it."""

    __slots__ = ("green",)

    def __init__(self) -> None:
        super().__init__()
        self.green: dict[int, GreenContext] = {}


class ContextHandles(Handles["Context"]):
    """Contexts by handle; a green context's handle names its primary context."""

    def __init__(self) -> None:
        super().__init__("context", code=INVALID_CONTEXT)
        # By the handle of the converted context.
        self.green: dict[int, GreenContext] = {}

    def get(self, handle: int) -> Context:
        """The context of a handle; DriverFailure INVALID_CONTEXT if there is none."""
        green = self.green.get(handle)
        return super().get(handle) if green is None else green.primary
