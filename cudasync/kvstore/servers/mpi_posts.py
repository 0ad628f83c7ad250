"""Floor 5. Requests and answers as messages of MPI, with a deadline.

The first message has the head, and the arrays if they are short. Long arrays follow in pieces.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.kvstore.servers import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.kvstore.servers.exchange import Steps

    Value = np.ndarray[Any, Any]

# Tags of a request and of an answer. The messages that follow them have a tag that is one larger.
ASKS, ANSWERS = 1, 3
# The most bytes of the first message, and how many of these may be arrays.
LONGEST_HEAD = 1 << 16
_SHORT_BYTES = 1 << 14
# A message's count is a C int.
_PIECE_BYTES = 1 << 30
# MPI moves bytes only during its calls. So a wait first polls without a pause: for the long time if
# the wait before was short, and else for the short one. On a busy machine another program has the
# processor, no wait is short, and polling only takes time from the other side. Then the wait
# sleeps between polls, longer and longer. It does not use sleep(0): on a busy machine a thread that
# yields runs after all other threads, and a thread that has slept runs before them.
_SPIN_S, _SHORT_SPIN_S = 0.0003, 0.00006
_SHORT_WAIT_S = 0.0005
# Each byte under way, up to a most, adds to the long time, and to what counts as a short wait.
_SPIN_BYTE_S, _SHORT_WAIT_BYTE_S, _MOST_SPIN_BYTES = 5e-10, 1e-9, 1 << 21
# Two sides that sleep make each other's waits long. So one wait in so many polls for the long time.
_TRIES = 8
_SHORTEST_SLEEP_S, _LONGEST_SLEEP_S = 0.00001, 0.001
# For this long the sleeps stay short: a constant, and more time for each byte under way.
_RECENT_S, _BYTE_S, _RECENT_SLEEP_S = 0.5, 1e-8, 0.00005


class Late(Exception):
    """The other side was late."""


class Pace:
    """How long the next wait for one side polls without a pause."""

    _is_short, _waits = True, 0

    def next_spin_s(self, size_bytes: int) -> float:
        """Count a wait that begins; returns its time, with so many bytes under way."""
        self._waits += 1
        if not self._is_short and self._waits % _TRIES:
            return _SHORT_SPIN_S
        return _SPIN_S + _SPIN_BYTE_S * min(size_bytes, _MOST_SPIN_BYTES)

    def note(self, waited_s: float, size_bytes: int) -> None:
        """Note the length of a wait that is over."""
        more = _SHORT_WAIT_BYTE_S * min(size_bytes, _MOST_SPIN_BYTES)
        self._is_short = waited_s < _SHORT_WAIT_S + more


class Patience:
    """The pauses of a wait."""

    def __init__(self, pace: Pace, size_bytes: int = 0) -> None:
        self._pace, self._size_bytes, self._spin_s = pace, size_bytes, pace.next_spin_s(size_bytes)
        self._begun = time.monotonic()
        self._recent_s = _RECENT_S + _BYTE_S * size_bytes
        self._pause_s = _SHORTEST_SLEEP_S

    def wait(self) -> None:
        """Wait a little."""
        waited = time.monotonic() - self._begun
        if waited < self._spin_s:
            return
        time.sleep(self._pause_s)
        longest = _RECENT_SLEEP_S if waited < self._recent_s else _LONGEST_SLEEP_S
        self._pause_s = min(2 * self._pause_s, longest)

    def end(self) -> None:
        """The wait is over."""
        self._pace.note(time.monotonic() - self._begun, self._size_bytes)


class Post:
    """One exchange with rank `other`; `let_go` keeps memory that MPI still uses at a deadline."""

    def __init__(
        self, MPI: Any, handle: Any, other: int, seconds: float, let_go: list[Any], pace: Pace
    ) -> None:
        self._MPI, self._handle, self._other, self._pace = MPI, handle, other, pace
        self._deadline = time.monotonic() + seconds
        self._let_go = let_go
        self._sending: list[tuple[Any, Any]] = []

    def send(self, head: bytes, arrays: list[Value], tag: int) -> None:
        """Start to send; `flush` waits for the end."""
        is_short = sum(each.nbytes for each in arrays) <= _SHORT_BYTES
        first = messages.framed(head, arrays if is_short else [])
        self._start(np.frombuffer(first, np.uint8), tag)
        for each in [] if is_short else arrays:
            for piece in _pieces(np.ascontiguousarray(each).reshape(-1).view(np.uint8)):
                self._start(piece, tag + 1)

    def receive(self, tag: int, into: Value | None) -> Steps:
        """The steps return the head's values and the arrays.

        The first array is in `into`, if it has equal size.
        """
        first, status = bytearray(LONGEST_HEAD), self._MPI.Status()
        request = self._handle.Irecv([first, self._MPI.BYTE], source=self._other, tag=tag)
        yield from self._end(request, first, status)

        def memory(size: int, number: int) -> Value:
            if number or into is None or into.nbytes != size:
                return np.empty(size, np.uint8)
            return into.reshape(-1).view(np.uint8)

        length = status.Get_count(self._MPI.BYTE)
        told, arrays = yield from self.rest(first, length, tag, memory)
        if (
            into is not None
            and arrays
            and (arrays[0].dtype, arrays[0].size) == (into.dtype, into.size)
        ):
            arrays[0] = into
        return told, arrays

    def rest(
        self, first: bytearray, length: int, tag: int, memory: Callable[[int, int], Value]
    ) -> Steps:
        """The same, after the first message; `memory(size, number)` allocates each array."""
        told, forms, end = messages.opened(first)
        sizes = [math.prod(shape) * dtype.itemsize for dtype, shape in forms]
        is_short, arrays = sum(sizes) <= _SHORT_BYTES, []
        for number, ((dtype, shape), size) in enumerate(zip(forms, sizes, strict=True)):
            flat = memory(size, number)
            if is_short:
                flat[...] = np.frombuffer(first, np.uint8, size, end)
                end += size
            else:
                for piece in _pieces(flat):
                    message = [piece, self._MPI.BYTE]
                    request = self._handle.Irecv(message, source=self._other, tag=tag + 1)
                    yield from self._end(request, piece)
            arrays.append(flat.view(dtype).reshape(shape))
        assert is_short or end == length
        return told, arrays

    def flush(self) -> Steps:
        """Wait until MPI has taken all sent bytes."""
        for request, piece in self._sending:
            yield from self._end(request, piece)
        self._sending.clear()

    def _start(self, piece: Value, tag: int) -> None:
        request = self._handle.Isend([piece, self._MPI.BYTE], dest=self._other, tag=tag)
        self._sending.append((request, piece))

    def _end(self, request: Any, used: Any, status: Any = None) -> Steps:
        if request.Test(status):
            return
        patience = Patience(self._pace, len(used) + sum(each.size for _, each in self._sending))
        is_over = False

        def wait() -> None:
            nonlocal is_over
            while not is_over and time.monotonic() < self._deadline:
                patience.wait()
                is_over = request.Test(status)

        try:
            while not is_over:
                yield wait
                if not is_over and time.monotonic() > self._deadline:
                    raise Late
        except BaseException:
            self._let_go.append((request, used, self._sending))
            raise
        patience.end()


def _pieces(flat: Value) -> list[Value]:
    return [flat[at : at + _PIECE_BYTES] for at in range(0, flat.size, _PIECE_BYTES)]
