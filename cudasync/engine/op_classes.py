"""Floor 2. The classes of ops: which fields each has beside those of all, and what it does without.

An op is made for each push, and each of its fields costs time there. So a plain function on
variables has few, an op of a device has its own, and fences have no function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.engine.op import Op, OpKind

if TYPE_CHECKING:
    from cudasync.driver import Device
    from cudasync.engine.device.in_doubt import Doubt
    from cudasync.engine.device.issuing import Issuer
    from cudasync.engine.device.timeline import Point
    from cudasync.engine.failure import Failure
    from cudasync.engine.log.node import Place
    from cudasync.engine.op import Regions


class PlainOp(Op):
    """A function on variables, for the compute workers: what `Engine.push` mostly makes.

    It is written by it field by field, since a constructor would cost as much as the rest. Each
    field costs 10 ns, a part of them the garbage collector's; so what can be told without is left
    out. Only for these is that worth it: see `FullOp`.
    """

    __slots__ = ("_failure", "_number", "_step")

    @property
    def number(self) -> int:
        return getattr(self, "_number", 0)

    @number.setter
    def number(self, number: int) -> None:
        self._number = number

    @property
    def failure(self) -> Failure | None:
        return getattr(self, "_failure", None)

    @failure.setter
    def failure(self, failure: Failure | None) -> None:
        self._failure = failure

    @property
    def _pool(self) -> Place:  # type: ignore[override]
        place: Place = self._engine._compute
        return place


class FullOp(Op):
    """Any other op: its fields are all there from the start."""

    __slots__ = ("__dict__", "_pool", "failure", "number")

    # Of a batch that failed: at which of its steps. (A `PlainOp` has none until it is written.)
    _step = ""


class ShortOp(FullOp):
    """A host op that the thread which pushes it may run: see `host.at_once`."""

    __slots__ = ("_regions",)

    _regions: Regions | None


class DeviceOp(FullOp):
    """An op that enqueues work on a stream."""

    __slots__ = (
        "_before",
        "_device",
        "_is_awaited",
        "_is_watched",
        "_kernel",
        "_outcome",
        "_point",
        "_regions",
        "kind",
    )

    kind: OpKind
    _regions: Regions | None
    _before: tuple[Op, ...] | None
    _device: Device
    _pool: Issuer
    # The kernel that it launches, where that is known: a device's fault report may name it. For a
    # batch the names of all its steps.
    _kernel: str | tuple[str, ...]
    # True while its push is going to issue it itself: an allocation, whose address it needs.
    _is_owned = False
    # True for a copy from or to pageable memory: the driver may wait while it is enqueued. So it is
    # issued by a thread that may, and once what it comes after is over.
    _is_blocking = False
    # Where it was issued, and what can be waited for; None before and after.
    _point: Point | None
    # A cell: how it ended, as far as the device is concerned. The first to say so is believed.
    _outcome: list[tuple[Failure | None]]
    # A slot beside `_point`: see the table of pairs in DESIGN.md.
    _is_watched: bool
    # Another one: somebody may be about to wait for its event. See `events`.
    _is_awaited: bool
    # True for a batch that has functions of users among its launches.
    _calls_users = False
    # What it came after on other devices; None for most, and once it is over.
    _doubt: Doubt | None = None

    @property
    def _is_issued(self) -> bool:
        return self._point is not None

    def _failed_at(self, index: int) -> None:
        """The step of that index of the batch that it is can not be enqueued."""
        self._step = f"step {index} ({self._kernel[index]})"


class DataFence(FullOp):
    """An op without a function: it is over as soon as what it reads is."""

    __slots__ = ()


class Fence(DataFence):
    """A fence behind everything that its engine was pushed before."""

    __slots__ = ()
