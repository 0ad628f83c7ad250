"""Floor 2. The history of one variable or byte range: its last writer and the readers since.

Only the combiner changes histories. Each store is repeatable, so that planning the same op again
gives the same history:
- `readers` are the ops that read since `writer` wrote, in push order, none of them `writer`;
- an op that is over orders nothing and may be dropped at any time, except a failed writer, which
  poisons later readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.engine.op import Op

# A list of this length is swept of finished readers, so that endless reads of one variable take
# bounded memory at a constant cost per read.
SWEEP = 16


class History:
    """The last writer of some data and the readers since."""

    __slots__ = ("epoch", "readers", "sweep_at", "writer")

    # True for a history that orders and does not poison: see `all_memory`.
    is_gap = False

    def __init__(self, epoch: int, writer: Op | None = None) -> None:
        # Its epoch: see `log.epoch`. A history of another epoch is copied before use.
        self.epoch = epoch
        self.writer = writer
        self.readers: list[Op] = []
        self.sweep_at = SWEEP

    def copy(self, epoch: int) -> History:
        """The same history, for another epoch or for one half of a range that is being split."""
        twin = History(epoch, self.writer)
        twin.readers = self.readers.copy()
        return twin

    def add_reader(self, op: Op) -> None:
        readers = self.readers
        if readers and readers[-1] is op:
            # `op` is planned again, or reads the data under two names.
            return
        readers.append(op)
        if len(readers) >= self.sweep_at:
            self.sweep()

    def sweep(self) -> None:
        """Drop readers that are over."""
        self.readers = readers = [r for r in self.readers if not r.finished]
        # Twice the living readers: the sweep's cost is spread over as many additions.
        self.sweep_at = max(SWEEP, 2 * len(readers))

    def overwrite(self, op: Op) -> None:
        self.writer = op
        if self.readers:
            self.readers = []

    def rest(self) -> bool:
        """Drop ops that order nothing; True if nothing is left, so that an op on this data may run
        at once."""
        writer = self.writer
        if writer is not None:
            if not writer.finished or writer.is_poisoned:
                return False
            self.writer = None
        if self.readers:
            if not all(reader.finished for reader in self.readers):
                return False
            self.readers = []
        return True

    @property
    def is_quiet(self) -> bool:
        """True if forgetting this history would change nothing."""
        writer = self.writer
        if writer is not None and (not writer.finished or writer.is_poisoned):
            return False
        return all(reader.finished for reader in self.readers)
