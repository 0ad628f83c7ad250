"""Floor 4. `prefetch`: items are ready, and copied to the device, before the loop asks for them.

    pull (in turn, by a variable) ──> gather into a pinned slot ──> copy to the device

True throughout:
- at most `depth` items are ahead of the consumer: it pushes the next pull when it takes an item;
- a gather overwrites its slot, and a copy reads it, so the engine orders a slot's next gather
  behind its last copy. Nothing else waits for the copy;
- each batch is a new device array, so a program that keeps it keeps its values. Its memory is
  allocated and freed in stream order, behind every kernel that reads it, by the same hazards.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array import copy, empty
from cudasync.data.batching import Batched, Samples
from cudasync.data.cursors import Cursor
from cudasync.data.failures import Failed, Origin
from cudasync.data.trees import leaves, rebuilt
from cudasync.driver import PinnedBuffer
from cudasync.engine import Engine, Var

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.data.meters import Meter
    from cudasync.engine import Op

_ALIGNED = 256
Spec = tuple[tuple[int, ...], np.dtype[Any]]


class Slot:
    """One pinned buffer of the ring, which grows to its largest batch."""

    def __init__(self) -> None:
        self._buffer: PinnedBuffer | None = None

    def views(self, specs: Sequence[Spec]) -> list[np.ndarray[Any, Any]]:
        """An array for each leaf. The memory of a smaller buffer lives until its last copy."""
        starts, end = [], 0
        for shape, dtype in specs:
            starts.append(end)
            size = int(np.prod(shape)) * dtype.itemsize
            end += -(-size // _ALIGNED) * _ALIGNED
        if self._buffer is None or self._buffer.size_bytes < end:
            self._buffer = PinnedBuffer(end)
        return [
            self._buffer.view(shape, dtype, offset_bytes=start)
            for (shape, dtype), start in zip(specs, starts, strict=True)
        ]

    def overwritten(self, views: list[Any]) -> list[Any]:
        """The writes that a gather into the slot declares."""
        return views


class Prefetched(Cursor):
    """The items of the source, up to `depth` of them ahead; on a device if one is given."""

    def __init__(self, source: Cursor, depth: int, device: int | None, meter: Meter) -> None:
        super().__init__(source)
        self._source, self._device, self.meter = source, device, meter
        self._depth = meter.capacity = depth
        # One thread draws from the source while another gathers.
        self._engine: Any = Engine("async", workers=1, pools={"gather": 1})
        self._drawn = Var("drawn")
        self._slots = [Slot() for _ in range(depth)]
        self._next_slot = 0
        self._pulls: deque[Op] = deque()
        self._number = 0
        self._is_over = self._is_stopped = False

    def take(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and not self._is_over:
            while len(self._pulls) < self._depth:
                self._pulls.append(
                    self._engine.push(self._pull, writes=[self._drawn], name=self.meter.stage)
                )
            self.meter.looked(sum(each.finished for each in self._pulls))
            pull = self._pulls.popleft()
            began = time.perf_counter()
            is_late = not pull.finished
            item, gathered = pull.result() or (None, None)
            if gathered is not None:
                is_late = is_late or not gathered.finished
                failure = gathered.result()
                item = failure or item
            if is_late:
                self.meter.waited(time.perf_counter() - began)
            if item is None:
                self._is_over = True
                break
            found.append(item[0] if item.__class__ is _One else item)
            if item.__class__ is Failed:
                self._is_over = True
        return found

    def origin(self, index: int) -> Origin:
        return self._source.origin(index)

    def advance(self, count: int) -> int:
        if self._pulls or self._is_over:
            return super().advance(count)
        gone = self._source.advance(count)
        self._number += gone
        return gone

    def _pull(self) -> tuple[Any, Op | None] | None:
        """The next item, and the op that gathers it; None at the end. Never raises."""
        if self._is_stopped:
            return None
        try:
            batches = isinstance(self._source, Batched)
            draw: Callable[[int], list[Any]] = (
                self._source.samples if isinstance(self._source, Batched) else self._source.take
            )
            items = draw(1)
            if not items:
                return None
            (item,) = items
            self._number += 1
            if item.__class__ is Failed:
                return item, None
            if self._device is not None:
                return self._sent(item)
            if batches:
                item = item.gathered()
            self.meter.worked(1, 0.0)
            return _One((item,)), None
        except Exception as error:
            return self._source.failed(self.meter.stage, max(0, self._number - 1), error), None

    def _sent(self, item: Any) -> tuple[Any, Op]:
        """Send `item` to the device: its arrays, and the op that gathers them."""
        if item.__class__ is Samples:
            tree, specs, gather = item.tree, item.specs, item.gather
        else:
            tree, arrays = item, [np.asarray(each) for each in leaves(item)]
            specs = [(each.shape, each.dtype) for each in arrays]

            def gather(targets: Sequence[Any]) -> None:
                for target, array in zip(targets, arrays, strict=True):
                    target[...] = array

        for _, dtype in specs:
            if dtype.kind not in "biuf":
                raise TypeError(f"{dtype} cannot be on a device: convert it to numbers in map()")
        slot = self._slots[self._next_slot]
        self._next_slot = (self._next_slot + 1) % self._depth
        views = slot.views(specs)
        number = self._number - 1

        def fill() -> Failed | None:
            began = time.perf_counter()
            try:
                gather(views)
            except Exception as error:
                return self._source.failed(self.meter.stage, number, error)
            self.meter.worked(1, time.perf_counter() - began)
            return None

        gathered: Op = self._engine.push(
            fill, writes=slot.overwritten(views), name=f"{self.meter.stage} gather", pool="gather"
        )
        arrays_there = []
        for view, (shape, dtype) in zip(views, specs, strict=True):
            there = empty(shape, dtype, device=self._device or 0)
            copy(there, view, name=f"{self.meter.stage} copy")
            arrays_there.append(there)
        return _One((rebuilt(tree, arrays_there),)), gathered

    def stop(self) -> None:
        self._is_over = self._is_stopped = True
        super().stop()

    def close(self) -> None:
        self.stop()
        self._pulls.clear()
        self._engine.close()
        self._slots = []
        super().close()


class _One(tuple[Any]):
    """A wrapper that distinguishes an item from the end and from failures."""

    __slots__ = ()
