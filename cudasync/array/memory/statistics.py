"""Floor 4, memory. `memory_stats` and `empty_cache`: the device memory that arrays hold now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from cudasync.array.memory.free_lists import (
    empty_pools,
    idle_allocations,
    idle_bytes_of,
    pool_of,
)
from cudasync.array.memory.holdings import every_holdings, holdings_of
from cudasync.driver.device import as_device
from cudasync.driver.streams.current_streams import current_device
from cudasync.engine.device.issue import Issuer
from cudasync.engine.hazards.byte_ranges import Cover

if TYPE_CHECKING:
    from cudasync.array.memory.holdings import Holding
    from cudasync.driver import Device
    from cudasync.driver.device import DeviceLike


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """The memory of one device that arrays hold; printed, it is a table. All sizes are in bytes."""

    # The device's ordinal.
    device: int
    # Held by live arrays, and by temporaries of ops in flight.
    in_use_bytes: int
    # Kept for later results. `empty_cache` frees it, and so does an allocation that would fail.
    cached_bytes: int
    # Held by dead arrays whose free waits for their last use.
    pending_bytes: int
    # The maximum of all three together since the device's context began.
    peak_bytes: int
    # As many bytes may be cached before a result has to wait for memory that ops still use. It
    # follows what the program needs; `empty_cache` and a lack of memory halve it.
    cache_limit_bytes: int
    # The number of results that had to wait for such memory.
    waiting_reuses: int
    # The number of allocations by the driver since then: constant in the steady state.
    allocation_count: int
    # The driver's figures; see `Device.memory`.
    held_bytes: int
    free_bytes: int
    total_bytes: int

    @property
    def other_bytes(self) -> int:
        """Bytes that are neither free nor an array's: buffers, modules, other libraries and
        processes."""
        arrays = self.in_use_bytes + self.cached_bytes + self.pending_bytes
        return max(0, self.total_bytes - self.free_bytes - arrays)

    def __str__(self) -> str:
        rows = (
            ("in use by arrays", self.in_use_bytes),
            ("cached for results", self.cached_bytes),
            ("freed, but still in use by ops", self.pending_bytes),
            ("peak of these", self.peak_bytes),
            ("may be cached", self.cache_limit_bytes),
            ("others'", self.other_bytes),
            ("free", self.free_bytes),
            ("total", self.total_bytes),
            ("freed, but held by the driver", self.held_bytes),
        )
        lines = [f"    {name:<34}{size:>20,}" for name, size in rows]
        head = (
            f"memory of Device({self.device}) in bytes, {self.allocation_count:,} allocations, "
            f"{self.waiting_reuses:,} waits for memory in use"
        )
        return "\n".join([head, *lines])


class Allocated(TypedDict):
    """The bytes that arrays have allocated on one device, the part of these that is kept for later
    results, and their maximum."""

    device: int
    allocated_bytes: int
    cached_bytes: int
    peak_bytes: int


def allocated() -> list[Allocated]:
    """The allocations on each device that had arrays. Asks no driver, and walks through nothing."""
    return [
        Allocated(
            device=life[0],
            allocated_bytes=each.tally.now,
            cached_bytes=idle_bytes_of(life),
            peak_bytes=each.tally.peak,
        )
        for life, each in every_holdings()
    ]


def memory_stats(device: DeviceLike | None = None) -> MemoryStats:
    """The memory of a device that arrays hold now; None for the current device. Does not wait.

    Asks the device for its progress, and walks through all allocations. Other threads go on
    meanwhile, so each number is right only by itself.
    """
    where = current_device() if device is None else as_device(device)
    sizes = {"in use": 0, "cached": 0, "pending": 0}
    kept = idle_of(where)
    holdings = holdings_of(where)
    # Frees that the device has passed are over, also if no thread has waited for them.
    frees = [op for each in holdings.all() if (op := each.pending) is not None]
    for place in {op._pool for op in frees if isinstance(op._pool, Issuer)}:
        place.look()
    # The driver may have used freed memory again, in the order of a stream that has not come so far
    # yet: these bytes count for their latest array.
    again = Cover()
    for holding in reversed(holdings.all()):
        sizes[state_of(holding, kept)] += sum(
            end - start for start, end in again.without(holding.region)
        )
        again.add(holding.region)
    memory, budget = where.memory(), pool_of(where).budget
    return MemoryStats(
        device=where.ordinal,
        in_use_bytes=sizes["in use"],
        cached_bytes=sizes["cached"],
        pending_bytes=sizes["pending"],
        peak_bytes=holdings.tally.peak,
        cache_limit_bytes=budget.limit_bytes,
        waiting_reuses=budget.waits.taken,
        allocation_count=holdings.made.taken,
        held_bytes=memory.held_bytes,
        free_bytes=memory.free_bytes,
        total_bytes=memory.total_bytes,
    )


def empty_cache(device: DeviceLike | None = None) -> int:
    """Free the memory that is kept for later results; returns its bytes.

    Of one device, or of all with None. Does not wait: each block is freed once its last use is
    over. An allocation of an array that would fail does this by itself. Call it to give memory to
    others: buffers of the driver layer, other libraries, other processes.
    """
    from cudasync.array.allocation import reap

    freed = empty_pools(None if device is None else as_device(device).ordinal)
    reap()
    return freed


def idle_of(device: Device) -> set[int]:
    """The addresses of memory that is kept for later results."""
    return {each.region.start for each in idle_allocations(device.ordinal)}


def state_of(holding: Holding, idle: set[int]) -> str:
    """ "in use", "cached" or "pending"."""
    allocation = holding.whose()
    if allocation is None:
        return "pending"
    return "cached" if allocation.region.start in idle else "in use"
