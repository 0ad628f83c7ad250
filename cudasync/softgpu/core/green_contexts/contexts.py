"""Cellar, core. Green contexts: the primary context of a device, with a part of its resources.

A green context owns only its streams. Memory, modules, events and faults belong to the primary
context, which the green context retains. So `Stream.context` is the primary context, and
`Stream.green` the green one. Kernels run like any other, because the multiprocessors are
bookkeeping; a cooperative launch must fit into those of its green context.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.handles import new_handle
from cudasync.softgpu.core.green_contexts.resources import (
    Multiprocessors,
    WorkQueue,
    WorkQueueConfig,
    all_multiprocessors,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.context import Context
    from cudasync.softgpu.core.green_contexts.resources import Resource
    from cudasync.softgpu.core.streams.streams import Stream


class GreenContext:
    """A green context, made from a descriptor on one device."""

    def __init__(self, primary: Context, resources: Sequence[Resource]) -> None:
        self.primary = primary
        self.handle = new_handle()
        # A second handle: a green context must be converted for use as a context.
        self.context_handle = new_handle()
        self.is_destroyed = False
        # All its streams wait for these, also later ones: see `Context.gates`.
        self.gates: list[Stream] = []
        ordinal = primary.device.ordinal
        parts = [each for each in resources if isinstance(each, Multiprocessors)]
        whole = all_multiprocessors(ordinal, primary.device.capability)
        mask = sum(part.mask for part in parts) or whole.mask
        granularity = parts[0].granularity if parts else whole.granularity
        self.multiprocessors = Multiprocessors(ordinal, mask, granularity)
        configs = [each for each in resources if isinstance(each, WorkQueueConfig)]
        self.config = configs[0] if configs else WorkQueueConfig(ordinal)
        queues = [each for each in resources if isinstance(each, WorkQueue)]
        self.queue = queues[0] if queues else WorkQueue(ordinal, self.handle)

    @property
    def streams(self) -> list[Stream]:
        """Its streams, and the primary context's default stream, which joins with them."""
        primary = self.primary
        return [s for s in list(primary.streams) if s.green is self or s is primary.legacy]
