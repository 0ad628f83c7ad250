"""Cellar, core. Operations on green contexts: the verbs behind the driver's calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.handles import Handles, new_handle
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_CONTEXT,
    INVALID_DEVICE,
    INVALID_RESOURCE_CONFIGURATION,
    INVALID_VALUE,
    DriverFailure,
)
from cudasync.softgpu.core.green_contexts.contexts import GreenContext
from cudasync.softgpu.core.green_contexts.resources import (
    SCOPES,
    Multiprocessors,
    Resource,
    WorkQueue,
    WorkQueueConfig,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.context import Context, Device
    from cudasync.softgpu.core.machine import Machine


class GreenContexts:
    """All green contexts and descriptors of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._descriptors: Handles[tuple[Resource, ...]] = Handles("descriptor", code=INVALID_VALUE)
        self._all: Handles[GreenContext] = Handles("green context", code=INVALID_CONTEXT)

    def get(self, handle: int) -> GreenContext:
        """The live green context of a CUgreenCtx."""
        return self._all.get(handle)

    def describe(self, resources: Sequence[Resource]) -> int:
        """cuDevResourceGenerateDesc: a descriptor, which lasts as long as the process."""
        _check_together(resources)
        handle = new_handle()
        self._descriptors.add(handle, tuple(resources))
        return handle

    def create(self, descriptor: int, device: Device) -> GreenContext:
        """cuGreenCtxCreate: retains the primary context of the device."""
        resources = self._descriptors.get(descriptor)
        if resources[0].ordinal != device.ordinal:
            raise DriverFailure(
                INVALID_DEVICE, f"the resources belong to device {resources[0].ordinal}"
            )
        made = GreenContext(self._machine.retain_primary(device), resources)
        self._all.add(made.handle, made)
        self._machine.contexts.green[made.context_handle] = made
        return made

    def destroy(self, handle: int) -> None:
        """cuGreenCtxDestroy: its streams finish their work, and accept no more."""
        green = self._all.remove(handle)
        self._end(green)
        machine = self._machine
        if machine.current_green() is green:
            machine.pop()
        for stream in green.streams:
            if stream.green is green:
                machine.streams.detach(stream)
        machine.release_primary(green.primary.device)

    def forget(self, context: Context) -> None:
        """Called when a primary context is reset: end its green contexts."""
        for green in self._all:
            if green.primary is context:
                self._all.discard(green.handle)
                self._end(green)

    def _end(self, green: GreenContext) -> None:
        green.is_destroyed = True
        self._machine.contexts.green.pop(green.context_handle, None)


def _check_together(resources: Sequence[Resource]) -> None:
    """DriverFailure for resources that cannot form one descriptor."""
    if not resources:
        raise DriverFailure(INVALID_VALUE, "a descriptor needs at least one resource")
    if len({each.ordinal for each in resources}) > 1:
        raise DriverFailure(
            INVALID_RESOURCE_CONFIGURATION, "the resources belong to several devices"
        )
    parts = [each for each in resources if isinstance(each, Multiprocessors)]
    if len({(part.origin, part.granularity.alignment) for part in parts}) > 1:
        raise DriverFailure(
            INVALID_RESOURCE_CONFIGURATION,
            "the multiprocessors of a descriptor must come from one split",
        )
    if sum(part.count for part in parts) > sum(part.mask for part in parts).bit_count():
        raise DriverFailure(INVALID_RESOURCE_CONFIGURATION, "a multiprocessor appears twice")
    for kind in (WorkQueueConfig, WorkQueue):
        if sum(isinstance(each, kind) for each in resources) > 1:
            raise DriverFailure(
                INVALID_RESOURCE_CONFIGURATION, "a descriptor has at most one work queue"
            )
    for each in resources:
        if isinstance(each, WorkQueueConfig) and (each.concurrency < 1 or each.scope not in SCOPES):
            raise DriverFailure(
                INVALID_VALUE,
                f"a work queue cannot have {each.concurrency} streams of scope {each.scope}",
            )
