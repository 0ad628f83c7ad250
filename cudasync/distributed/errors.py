"""Floor 5. The errors between ranks, and their attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Sequence


class DistError(CudasyncError):
    """Base class of errors between ranks."""


class BackendUnavailable(DistError):
    """A communicator is not available here.

    `backend` is its name, `reason` says why it is not available, and `hint` what to do.
    """

    def __init__(self, backend: str, reason: str, *, hint: str) -> None:
        self.backend = backend
        self.reason = reason
        self.hint = hint
        super().__init__(f"the {backend} communicator is not available: {reason}; {hint}")


class CommunicatorBroken(DistError):
    """A collective failed earlier: make another communicator, or end. `reason` is the failure."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the communicator is broken: {reason}; make a new one, or end the program"
        )


class CollectiveTimeout(DistError, TimeoutError):
    """A collective did not end in time; the communicator is broken from then on.

    `operation` is the collective's name, `sequence` its number on the communicator, from 0, and
    `seconds` the limit. `rank` is a rank that it waited for, if known. The collective's arrays stay
    alive until the transport releases them.
    """

    def __init__(
        self, operation: str, sequence: int, seconds: float, *, rank: int | None = None
    ) -> None:
        self.operation = operation
        self.sequence = sequence
        self.seconds = seconds
        self.rank = rank
        why = (
            "a rank is late, dead, or calls something else (init(debug=True) compares the calls)"
            if rank is None
            else f"rank {rank} has not made the matching call yet"
        )
        super().__init__(
            f"{operation} (number {sequence} on its communicator) did not end within {seconds:g} s:"
            f" {why}"
        )


class CollectiveMismatch(DistError):
    """Ranks made different calls in the same position; raised on all these ranks, in debug mode.

    `calls` has each rank's call, with the line that pushed it.
    """

    def __init__(self, calls: Sequence[str]) -> None:
        self.calls = tuple(calls)
        told = "; ".join(f"rank {rank}: {call}" for rank, call in enumerate(calls))
        super().__init__(f"the ranks call different operations: {told}")


class RankFailed(DistError):
    """Other ranks of the communicator are dead; `ranks` are the known ones, perhaps none."""

    def __init__(self, operation: str, ranks: Sequence[int], said: str = "") -> None:
        self.operation = operation
        self.ranks = tuple(ranks)
        who = f"rank {', '.join(map(str, self.ranks))}" if self.ranks else "a rank"
        super().__init__(f"{who} died during {operation}" + (f": {said}" if said else ""))
