"""Floor 2. The classes of ops, each with only the fields that it needs.

Each push makes an op, and each field costs time there. So a plain function on variables has few
fields, a device op has further ones, and a fence has no function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine.op import Op, OpKind

if TYPE_CHECKING:
    from cudasync.driver import Device
    from cudasync.engine.device.in_doubt import Doubt
    from cudasync.engine.device.issue import Issuer
    from cudasync.engine.device.timeline import Point
    from cudasync.engine.failure import Failure
    from cudasync.engine.log.node import Place
    from cudasync.engine.op import Regions


class PlainOp(Op):
    """A function on variables, for the compute workers: the usual op of `Engine.push`.

    `Engine.push` writes it field by field, since a constructor would cost as much as the rest. Each
    field costs 10 ns, partly in the garbage collector; so fields with a usual default are left out.
    Other ops do not need this: see `FullOp`.
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
    """Any other op: all its fields are set from the start."""

    __slots__ = ("__dict__", "_pool", "failure", "number")

    # The failed step of a batch. (A `PlainOp` lacks it until it is written.)
    _step = ""


class ShortOp(FullOp):
    """A host op that the pushing thread may run: see `host.inline_execution`."""

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
    # The name of its kernel, if known: a device's fault report may name it. For a batch the names
    # of all its steps.
    _kernel: str | tuple[str, ...]
    # True while its push will issue it: an allocation, whose address the push needs.
    _is_owned = False
    # True for a copy from or to pageable memory: the driver may wait while it is enqueued. So a
    # thread that may block issues it, once its predecessors are over.
    _is_blocking = False
    # Its place of issue and its event; None before it is issued and after it is over.
    _point: Point | None
    # A cell: its result on the device. The first outcome counts.
    _outcome: list[tuple[Failure | None]]
    # In the table of pairs in DESIGN.md, together with `_point`.
    _is_watched: bool
    # In the same table: a thread may be about to wait for its event. See `events`.
    _is_awaited: bool
    # True for a batch with users' functions among its launches.
    _calls_users = False
    # True once another thread has ended it for its claimant: see `lifecycle.left_ops`.
    _is_given_up = False
    # Its predecessors on other devices; None for most ops, and once it is over.
    _doubt: Doubt | None = None

    @property
    def _salvage(self) -> Any:  # type: ignore[override]
        # For launches of several nodes only, and read only if a source may have failed.
        return getattr(self._kernel, "salvage", None)

    @property
    def _is_issued(self) -> bool:
        return self._point is not None

    def _failed_at(self, index: int) -> None:
        """Record that the batch's step at `index` cannot be enqueued."""
        self._step = f"step {index} ({self._kernel[index]})"


# The classes of ops on streams. Asking whether a class is in here costs as little as comparing it.
DEVICE_OPS: set[type[Op]] = {DeviceOp}


class DataFence(FullOp):
    """An op without a function: it is over as soon as the writers of its reads are."""

    __slots__ = ()

    _fn = None
    is_fence = True


class Fence(DataFence):
    """A fence behind every earlier op of its engine."""

    __slots__ = ()
