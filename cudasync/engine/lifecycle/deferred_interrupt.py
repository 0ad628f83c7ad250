"""Floor 2. Ctrl-C that comes while the waiting thread runs a short op is given to it afterwards.

An interrupted function would fail, and poison its data; on a worker it would have gone on. So the
handler of SIGINT is replaced for the time of a short call, and called behind it. A call that takes
long against all expectation is interrupted: a program can always be ended.
"""

from __future__ import annotations

import signal
from threading import get_ident, main_thread
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# Nobody notices that Ctrl-C took so long.
LONGEST_S = 0.1


def uninterrupted(call: Callable[[], T]) -> T:
    """`call()`. Ctrl-C is raised once it has returned or raised.

    The second Ctrl-C, or one that comes later than `LONGEST_S`, is raised inside of `call`.
    """
    if get_ident() != main_thread().ident:
        # Python calls handlers on the main thread alone.
        return call()
    # Before the replacement, which a signal may follow at once.
    before: Any = signal.getsignal(signal.SIGINT)
    if not callable(before):
        return call()
    arrived: list[Any] = []
    until = monotonic() + LONGEST_S

    def defer(number: int, frame: Any) -> None:
        if not arrived and monotonic() < until:
            arrived.append(frame)
            return
        arrived.clear()
        # Also if an exception of another handler struck before the `try` below, and left this one.
        signal.signal(signal.SIGINT, before)
        before(number, frame)

    signal.signal(signal.SIGINT, defer)
    try:
        return call()
    finally:
        if signal.getsignal(signal.SIGINT) is defer:
            # Else `call` has set a handler of its own.
            signal.signal(signal.SIGINT, before)
        if arrived:
            before(signal.SIGINT, arrived.pop())
