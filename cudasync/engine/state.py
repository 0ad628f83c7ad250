"""Floor 2. What is remembered of one variable or byte range: its last writer, the reads since.

True under `plan.LOCK`, which every function here assumes to be held:
- `readers` are the ops that read since `writer` wrote, in push order, none of them `writer`;
- a finished op orders nothing any more and may be dropped at any time, except a failed writer,
  which poisons later readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.engine.op import Op

# Finished readers are swept out when a list has grown to this length, so that reading one
# variable for ever takes bounded memory at a constant cost per read.
SWEEP = 16


class State:
    """The last writer of some data and the readers since."""

    __slots__ = ("readers", "sweep_at", "writer", "writes")

    def __init__(self, writer: Op | None = None, readers: list[Op] | None = None) -> None:
        self.writer = writer
        self.readers = [] if readers is None else readers
        self.sweep_at = SWEEP
        # How many writes were pushed so far; kept for variables, which live as long as it counts.
        self.writes = 0

    def copy(self) -> State:
        """The same history for one half of a range that is being split."""
        return State(self.writer, list(self.readers))

    def add_reader(self, op: Op) -> None:
        readers = self.readers
        if readers and readers[-1] is op:
            return
        readers.append(op)
        if len(readers) >= self.sweep_at:
            self.readers = [r for r in readers if not r.finished]
            # Twice what is alive: the sweep's cost is spread over as many additions.
            self.sweep_at = max(SWEEP, 2 * len(self.readers))

    @property
    def is_quiet(self) -> bool:
        """True if forgetting this state would change nothing."""
        writer = self.writer
        if writer is not None and (not writer.finished or writer.is_poisoned):
            return False
        return all(reader.finished for reader in self.readers)
