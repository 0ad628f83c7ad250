"""Floor 4. Device memory with an owner: allocated by an op, freed by an op.

When the last array that uses an allocation dies, the free is pushed like any other write of the
whole range. So the free comes after every use on every stream. Finalisers may run anywhere, even
inside the engine, so they only leave a note. The next call that makes or uses an array acts on the
note.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from cudasync.array.interchange.stream_ownership import Handed
from cudasync.array.memory.exhaustion import allocated
from cudasync.array.memory.holdings import Holding, holdings_of
from cudasync.atomic import Inbox
from cudasync.driver import Device, DeviceBuffer
from cudasync.driver.interchange.dlpack_export import has_loans, reclaim
from cudasync.driver.interchange.protocols import DLPACK_CUDA
from cudasync.driver.memory.peer_access import is_open_to_peers
from cudasync.engine import engine
from cudasync.engine.frames import without_frames
from cudasync.engine.hazards.interval_map import Region
from cudasync.engine.op import OpKind
from cudasync.errors import ClosedError, CudaError, CudasyncError

if TYPE_CHECKING:
    from cudasync.driver import Stream
    from cudasync.driver.ownership.context_life import Life
    from cudasync.engine import Engine


class Ending(Protocol):
    """The end of some memory, once no array uses it: a note that a finaliser can leave."""

    @property
    def owner(self) -> weakref.ref[Engine]:
        """The engine that is to push the end, if it still exists."""

    @property
    def is_over(self) -> bool:
        """True if there is nothing left to do."""

    def push(self, engine: Engine) -> None:
        """Push the op that ends the memory, behind all uses of it."""


DEAD: Inbox[Ending] = Inbox()


class DeviceBytes:
    """Some bytes of device memory with another owner, in the form that the driver layer takes."""

    __slots__ = ("device", "ptr", "size_bytes")

    def __init__(self, ptr: int, size_bytes: int, device: Device) -> None:
        self.ptr = ptr
        self.size_bytes = size_bytes
        self.device = device

    def __cudasync_memory__(self, stream: object) -> tuple[int, int, bool]:
        return self.ptr, self.size_bytes, False


class Memory(Protocol):
    """Device memory that arrays are views of; it ends with the last of them."""

    # The parts that were handed over to foreign streams.
    handed: Handed

    @property
    def device(self) -> Device: ...

    @property
    def only_device(self) -> Device | None:
        """The device that alone reaches it; None if all devices do."""

    @property
    def life(self) -> Life | None:
        """The life of its device's context with which it ends; None where it is unknown."""

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's type and number of its device."""


class Allocation:
    """Bytes on a device that live until the last array that uses them is gone."""

    __slots__ = ("__weakref__", "_is_open", "buffer", "handed", "life", "region")

    region: Region

    def __init__(self, owner: Engine, device: Device, size_bytes: int) -> None:
        reap()
        self.handed = Handed()
        self.buffer = allocated(
            device, size_bytes, partial(_allocate, owner, device, size_bytes, self), reap
        )
        self.life = self.buffer.life
        self._is_open: bool | None = None

    @property
    def is_open_to_peers(self) -> bool:
        """See `driver.memory.peer_access`. The driver is asked once."""
        if self._is_open is None:
            self._is_open = is_open_to_peers(self.buffer.ptr, self.device)
        return self._is_open

    @property
    def device(self) -> Device:
        return self.buffer.device

    @property
    def only_device(self) -> Device | None:
        return self.buffer.device

    @property
    def dlpack_device(self) -> tuple[int, int]:
        return (DLPACK_CUDA, self.device.ordinal)


class _Free:
    """The end of memory that the engine allocated."""

    __slots__ = ("_holding", "_holdings", "_region", "owner")

    def __init__(self, holding: Holding, region: Region, owner: Engine) -> None:
        self._holding = holding
        self._holdings = holdings_of(holding.buffer.device)
        self._region = region
        self.owner = weakref.ref(owner)

    @property
    def is_over(self) -> bool:
        # A reset of the device freed it.
        return self._holding.buffer.is_closed

    def push(self, engine: Engine) -> None:
        device = self._holding.buffer.device
        op = engine._push(
            self._free, OpKind.FREE, writes=[self._region], name="free", device=device
        )
        self._holding.free = weakref.ref(op)

    def _free(self, stream: Stream) -> None:
        buffer = self._holding.buffer
        # After a device fault there is nothing left to free.
        with suppress(CudasyncError):
            buffer.close(stream)
        self._holdings.tally.add(-buffer.size_bytes)


def _allocate(owner: Engine, device: Device, size_bytes: int, made: Allocation) -> DeviceBuffer:
    def allocate(stream: Stream) -> Any:
        return DeviceBuffer(size_bytes, device, stream=stream)

    # Nothing blocks an op that reads and writes nothing: it is issued before the push returns.
    op = owner._push(allocate, OpKind.ALLOCATE, name="allocate", device=device)
    failure = op.failure
    if failure is not None:
        if not isinstance(failure.cause, CudaError) or not failure.cause.sticky:
            # The caller gets the error now; later waits need not raise it again.
            failure.cleared = True
            # A copy: the op does not keep the frames that the caller's error passes through.
            raise without_frames(failure.cause)
        raise failure.error()
    buffer = op._result
    assert isinstance(buffer, DeviceBuffer)
    made.region = Region(buffer.ptr, buffer.ptr + size_bytes)
    owner._adopt(made.region, op)
    holding = Holding(buffer, weakref.ref(made), op)
    holdings_of(device).note(holding)
    note = _Free(holding, made.region, owner)
    weakref.finalize(made, DEAD.put, note).atexit = False
    return buffer


def reap() -> None:
    """Push the ends of arrays that died since, and reclaim memory that other libraries returned."""
    if has_loans():
        reclaim()
    if not DEAD:
        return
    while (note := DEAD.take()) is not None:
        if note.is_over:
            continue
        # Any engine will do once the owner is closed: hazards hold across engines.
        for each in (note.owner(), engine()):
            # Another thread may close it meanwhile.
            if each is not None and not each.is_closed:
                with suppress(ClosedError):
                    note.push(each)
                    break
