"""Floor 5. An exchange with a server as a generator of steps, which another thread may continue.

The generator yields waits: functions that block until they are over or late. Ctrl-C in a wait
leaves the exchange unchanged. The next exchange with this server first makes the steps that are
left.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from cudasync.kvstore.servers.transport import Connection

# A step looks again at what it waits for when it resumes, so resuming it too early is harmless.
Steps: TypeAlias = Generator[Callable[[], Any], None, Any]


class Exchange:
    """The steps of one exchange, made by one thread at a time, and their result."""

    __slots__ = ("_connection", "_error", "_result", "_steps")

    def __init__(self, connection: Connection, steps: Steps) -> None:
        self._connection, self._steps = connection, steps
        self._result: Any = None
        self._error: BaseException | None = None

    @property
    def can_go_on(self) -> bool:
        """True unless Ctrl-C ended a step."""
        return self._error is None or isinstance(self._error, Exception)

    @property
    def has_result(self) -> bool:
        """True once all steps are made and none has failed."""
        is_closed = inspect.getgeneratorstate(self._steps) == inspect.GEN_CLOSED
        return is_closed and self._error is None

    def __call__(self) -> Any:
        """Make the remaining steps and return their result, or raise their exception; blocks."""
        connection = self._connection
        with connection.lock:
            other = connection.unfinished
            if other is not None and other is not self:
                # Otherwise its answer would be taken for the answer to this question. Its op gets
                # its error.
                other._go_on()
            connection.unfinished = self
            self._go_on()
            connection.unfinished = None
        if self._error is not None:
            raise self._error
        return self._result

    def _go_on(self) -> None:
        while inspect.getgeneratorstate(self._steps) != inspect.GEN_CLOSED:
            try:
                wait = next(self._steps)
            except StopIteration as end:
                self._result = end.value
                return
            except BaseException as error:
                self._error = error
                if isinstance(error, Exception):
                    return
                # Ctrl-C belongs to this thread, also in the steps of another op.
                raise
            wait()


def finished(steps: Steps) -> Any:
    """Make all steps on the calling thread, and return their result; blocks."""
    while True:
        try:
            wait = next(steps)
        except StopIteration as end:
            return end.value
        wait()
