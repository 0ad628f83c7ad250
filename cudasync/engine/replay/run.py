"""Floor 2. A run: launches of one sequence as one entry of the log, which any thread may seal.

The first launch appends the run; each later one takes the next cell of `slots`. Whoever plans the
run asks for its accesses, which seals it: nobody joins any more, and the number of launches is
known. So a wait, another thread's push, `close`, a fork or the watchdog needs no code of its own.

Invariants:
- a cell of `slots` has a launch's op, or the seal, and never changes. The cells before the seal are
  all full, so two planners find the same number of launches;
- the first piece in `_pieces` counts. Pieces of one stretch have equal accesses.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from cudasync.atomic import offer
from cudasync.engine.device.ready import settle
from cudasync.engine.log.combiner import COMBINER
from cudasync.engine.op import Op, OpKind, site_of
from cudasync.engine.op_classes import DEVICE_OPS, DeviceOp
from cudasync.engine.replay.sequence import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from cudasync.driver import Event, Stream
    from cudasync.engine.failure import Failure
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.op import Regions
    from cudasync.engine.replay.sequence import Piece, Step

# In the cell behind the last launch.
SEALED: Any = object()


class Run(DeviceOp):
    """The op of a run."""

    __slots__ = (
        "_began",
        "_end",
        "_first",
        "_pieces",
        "_slots",
        "arguments",
        "count",
        "left_out",
        "sequence",
    )

    def __init__(self, first: Step, frame: FrameType) -> None:
        sequence = first.sequence
        engine: Any = sequence.engine
        self.sequence = sequence
        self._first = first.index
        # The index behind its last step, if all of them join.
        self._end = first.end
        # By the index of the step.
        self._slots: dict[int, Any] = {}
        self._pieces: list[Piece] = []
        # The number of launches, once it is known.
        self.count: int | None = None
        # The packed arguments of those whose numbers change, once there is a piece.
        self.arguments: Sequence[bytes] = ()
        # The launches that were not made, since their input had failed: set before `_damage`.
        self.left_out: frozenset[int] = frozenset()
        self._began = perf_counter()
        self.finished = False
        self.failure = None
        self.number = 0
        # Until it is sealed.
        self.name = name_of(self._end - self._first)
        self._kernel = ()
        self._engine = engine
        self._claims = []
        self._reads = self._writes = ()
        self._pool = engine._issuer
        self._node = None
        self._code = frame.f_code
        self._at = frame.f_lasti
        self.kind = OpKind.KERNEL
        self._before = None
        self._device = sequence.device
        self._outcome = []
        self._is_watched = self._is_awaited = False
        self._point = None
        # Until it is claimed, this refers to the run.
        self._fn = self._enqueue

    @property
    def _regions(self) -> Regions:  # type: ignore[override]
        """The accesses of its launches. This seals it."""
        regions: Regions = self.piece.accesses[0]
        return regions

    @property
    def piece(self) -> Piece:
        """The work of its launches. This seals it."""
        # The cells first: they are let go only once there is a piece.
        slots = self._slots
        if self._pieces:
            return self._pieces[0]
        count = self._seal(slots)
        if self.sequence.changes:
            self.arguments = self._given(slots, count)
        piece = offer(self._pieces, self.sequence.piece(self._first, count))
        _, self._reads, self._writes = piece.accesses
        self._kernel = piece.names
        self.name = piece.name
        if self.count is None:
            self._note_pace(count)
            self.count = count
        # Ops refer to the run, and the cells to the ops. Who may still join has the cells.
        self._slots = {}
        return piece

    def _seal(self, slots: dict[int, Any]) -> int:
        """The number of launches in these cells. Nobody joins any more."""
        first, end = self._first, self._end
        index = first + len(slots) - 1
        if index >= first and slots.get(index) is SEALED:
            return index - first
        while index + 1 < end:
            index += 1
            if slots.setdefault(index, SEALED) is SEALED:
                return index - first
        return end - first

    def _given(self, slots: dict[int, Any], count: int) -> list[bytes]:
        """The packed arguments of the launches whose numbers change."""
        joined = [slots[self._first + at] for at in range(count)]
        return [each._taken for each in joined if each._step.changes]

    def _note_pace(self, count: int) -> None:
        is_whole = self._first + count == self._end
        self.sequence.note(count, perf_counter() - self._began, is_whole=is_whole)

    def _enqueue(self, stream: Stream, event: Event | None = None) -> None:
        # Called once, by the thread that has claimed the run.
        piece = self.piece
        counters = self._engine._ledger.counters
        (counters.graphs if piece.is_graph else counters.runs)[len(piece.names)].next()
        piece.enqueue(stream, event, self.arguments)


DEVICE_OPS.add(Run)


class JoinedLaunch(Op):
    """The op of one launch of a run, as its caller has it. What it says is made on request."""

    __slots__ = ("_run", "_step", "_taken")

    _run: Run
    _step: Step
    # The answer of `Step.takes`.
    _taken: Any
    kind = OpKind.KERNEL
    priority = 0

    @property
    def finished(self) -> bool:  # type: ignore[override]
        return self._run.finished

    @property
    def failure(self) -> Failure | None:  # type: ignore[override]
        """The failure of the run, if this launch was not made."""
        run = self._run
        failure = run.failure
        # Without damage of its own, nothing of the run was done.
        if failure is None or run._damage is None:
            return failure
        return failure if self._step.index - run._first in run.left_out else None

    @property
    def number(self) -> int:  # type: ignore[override]
        return self._run.number

    @property
    def name(self) -> str:  # type: ignore[override]
        return self._step.name

    @property
    def push_site(self) -> str:
        return site_of(self._step.code, self._step.at)

    @property
    def _engine(self) -> Any:  # type: ignore[override]
        return self._run._engine

    @property
    def _said(self) -> Accesses:  # type: ignore[override]
        return self._step.accesses

    @property
    def _is_issued(self) -> bool:
        return self._run._point is not None

    def done(self) -> bool:
        flush(self._run)
        return self._run.done()

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        self._run.add_done_callback(callback)

    def _wait_finished(self, timeout: float | None) -> None:
        self._run._wait_finished(timeout)


def flush(run: Run) -> None:
    """Plan and issue `run`, and the log before it. Waits for no thread."""
    if not (run.finished or run._point is not None):
        COMBINER.plan(run)
        settle()
