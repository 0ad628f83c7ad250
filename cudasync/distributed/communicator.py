"""Floor 5. The interface of communicators: ranks, and collectives, pushed in program order.

A process has one rank of a communicator or several (`ranks`). Every call takes a list with one
array for each rank of this process. A process with one rank may pass the array alone. Calls return
at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cudasync.distributed.errors import CommunicatorBroken
from cudasync.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cudasync.distributed.work import Work


# Up to this many collectives are noted without a test whether they are over.
FEW = 8


class Group:
    """The calls of a `with comm.group()` block; `works` has one entry a call after the block."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.calls: list[Callable[[], Work]] = []
        # For local communicators, by the number of the call: sender and receiver, and the array.
        self.sent: dict[int, tuple[tuple[int, int], Any]] = {}
        self.received: dict[int, tuple[tuple[int, int], Any]] = {}


class Communicator(ABC):
    """Ranks that exchange arrays by collectives; made by `init` and `split`.

    It has `size` ranks in all. This process has `ranks` of them, with their arrays on `devices`;
    `rank` is the first of these. All ranks make the same calls in the same order.
    """

    backend: str

    def __init__(self, size: int, ranks: tuple[int, ...], devices: tuple[Any, ...]) -> None:
        self.size = size
        self.ranks = ranks
        self.devices = devices
        self.is_closed = False
        # Launched collectives that may not be over. At this length the list is tested again.
        self._launched: list[Work] = []
        self._ask_at = FEW

    @property
    def rank(self) -> int:
        """The first rank of this process."""
        return self.ranks[0]

    @property
    def broken_by(self) -> str | None:
        """The first failure between ranks; None if nothing failed."""
        return None

    @property
    def is_broken(self) -> bool:
        """True once a collective failed between ranks: every later call raises."""
        return self.broken_by is not None

    def each(self, make: Callable[[int, Any], Any]) -> list[Any]:
        """`make(rank, device)` for each rank of this process, as the list that calls take."""
        return [make(*each) for each in zip(self.ranks, self.devices, strict=True)]

    @abstractmethod
    def raise_unless_it_computes(self, dtype: Any) -> None:
        """TypeError for a dtype that no reduction takes."""

    @abstractmethod
    def all_reduce(self, x: Any, out: Any = None, *, op: str = "sum", priority: int = 0) -> Any:
        """Every rank's `out` (default: its `x`) becomes the reduction of all ranks' `x`.

        `op` is "sum", "prod", "min", "max" or "mean" (floats only). All ranks get the same bits,
        each time. Like all collectives it raises TypeError and ValueError before anything moves,
        and returns the `Work`, or None in a `group()`.
        """

    @abstractmethod
    def all_gather(self, x: Any, out: Any, *, priority: int = 0) -> Any:
        """Every rank's `out` becomes all ranks' `x`, one after the other along the first axis.

        `x` may be its own part of `out`.
        """

    @abstractmethod
    def reduce_scatter(self, x: Any, out: Any, *, op: str = "sum", priority: int = 0) -> Any:
        """Rank r's `out` becomes part r, along the first axis, of the reduction of all `x`.

        `x` has `size` times the length of `out`; `out` may be part r of `x`.
        """

    @abstractmethod
    def broadcast(self, x: Any, root: int = 0, *, priority: int = 0) -> Any:
        """Every rank's `x` becomes the `x` of rank `root`."""

    @abstractmethod
    def reduce(
        self, x: Any, out: Any = None, *, op: str = "sum", root: int = 0, priority: int = 0
    ) -> Any:
        """The `out` of rank `root` (default: its `x`) becomes the reduction of all `x`.

        Nothing is written on other ranks, whose `out` may be None.
        """

    @abstractmethod
    def gather(self, x: Any, out: Any, root: int = 0, *, priority: int = 0) -> Any:
        """The `out` of `root` becomes all ranks' `x` along the first axis.

        Other ranks give None.
        """

    @abstractmethod
    def scatter(self, x: Any, out: Any, root: int = 0, *, priority: int = 0) -> Any:
        """Rank r's `out` becomes part r of the `x` of `root`; other ranks give None as `x`."""

    @abstractmethod
    def all_to_all(self, x: Any, out: Any = None, *, priority: int = 0) -> Any:
        """Part s of rank r's `out` (default: its `x`) becomes part r of rank s's `x`."""

    @abstractmethod
    def send(self, x: Any, to: int, *, rank: int | None = None, priority: int = 0) -> Any:
        """Send `x` to rank `to`; `rank` is the sender, where this process has several."""

    @abstractmethod
    def recv(self, out: Any, source: int, *, rank: int | None = None, priority: int = 0) -> Any:
        """Receive the next array that `source` sends to this rank.

        `rank` is the receiver, where this process has several. `out` must have the shape and dtype
        of the sent array.
        """

    @abstractmethod
    def barrier(self, timeout: float | None = None) -> None:
        """Block until all ranks are here and this process's earlier collectives are over."""

    @abstractmethod
    def split(self, color: Any, key: Any = None) -> Any:
        """Communicators of the ranks with one `color`, ordered by `key`, then by rank.

        A list of colors, one for each rank of this process, gives a list; a single color gives a
        single communicator. The color None gives None. All ranks call it; it blocks between
        processes.
        """

    def close(self) -> None:
        """Refuse further calls. Closing twice is harmless; launched calls continue."""
        self.is_closed = True

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Communicator {self.backend} ranks {list(self.ranks)} of {self.size}>"

    # Groups: calls are checked when they are made and launched together.

    _group: Group | None = None

    @contextmanager
    def group(self) -> Iterator[Group]:
        """Launch the calls of the block together when it ends, and none if it raises.

        A call is checked at once and returns None; the group's `works` has the results afterwards.
        In a group a recv may come before its send.
        """
        self.raise_if_over()
        if self._group is not None:
            raise ValueError(
                "a group of this communicator is open: close it first, groups do not nest"
            )
        self._group = opened = Group()
        try:
            yield opened
        finally:
            self._group = None
        self.launch(opened)

    def launch(self, group: Group) -> None:
        """Launch the calls of a group, in order."""
        group.works = [call() for call in group.calls]

    def launched(self, call: Callable[[], Work]) -> Work | None:
        """Launch a checked call: now, or with its group."""
        if self._group is None:
            return call()
        self._group.calls.append(call)
        return None

    def noted(self, work: Work) -> Work:
        """Note a launched `work`, so that a barrier waits for it."""
        if work.is_over:
            # A recorded work always is.
            return work
        self._launched.append(work)
        if len(self._launched) > self._ask_at:
            self._launched = [each for each in self._launched if not each.is_over]
            # Otherwise a thousand unfinished calls would make half a million tests.
            self._ask_at = FEW + 2 * len(self._launched)
        return work

    def wait_for_launched(self, timeout: float | None) -> None:
        """This process's part of a barrier; ValueError in a group."""
        self.raise_if_over()
        if self._group is not None:
            raise ValueError("a barrier inside a group would wait forever: call it after the group")
        for work in self._launched:
            work.wait(timeout)
        self._launched.clear()

    def raise_if_over(self) -> None:
        """Raise CommunicatorBroken or ClosedError if no further call is possible."""
        if self.broken_by is not None:
            raise CommunicatorBroken(self.broken_by)
        if self.is_closed:
            raise ClosedError("the communicator was closed: make another with init()")


def parts_of(
    comm: Communicator, color: Any, key: Any, make: Callable[[Sequence[Any]], Communicator]
) -> Any:
    """The result of `split` in a process with all ranks.

    `make` makes a communicator of devices.
    """
    is_alone = not isinstance(color, (list, tuple))
    colors = [color] if is_alone else list(color)
    keys = [0] * comm.size if key is None else [key] if is_alone else list(key)
    if len(colors) != comm.size or len(keys) != comm.size:
        raise ValueError(f"split takes a list of {comm.size} colors and a list of {comm.size} keys")
    made: dict[Any, Communicator] = {}
    for each in dict.fromkeys(colors):
        members = sorted((keys[r], r) for r in range(comm.size) if colors[r] == each)
        if each is not None:
            made[each] = make([comm.devices[r] for _, r in members])
    found = [made.get(each) for each in colors]
    return found[0] if is_alone else found
