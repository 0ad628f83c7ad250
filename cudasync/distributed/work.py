"""Floor 5. `Work`: what a collective returns, with the verbs of an op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.engine import engine
from cudasync.errors import RecordingError
from cudasync.graph.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from cudasync.engine import Op


class Work:
    """A launched collective: wait for it, or ask whether it is done.

    It is over once all its outputs on this process's ranks are written.
    """

    __slots__ = ("_mark", "name")

    def __init__(self, name: str, mark: Op | None) -> None:
        self.name = name
        self._mark = mark

    def wait(self, timeout: float | None = None) -> None:
        """Block until it is over. OpError if it failed, TimeoutError after `timeout` seconds."""
        self._op().wait(timeout)

    def done(self) -> bool:
        """True once it is over, failed or not."""
        return bool(self._op().done())

    @property
    def is_over(self) -> bool:
        """As `done`, and True for a recorded collective."""
        return self._mark is None or bool(self._mark.done())

    def exception(self) -> BaseException | None:
        """The exception that a wait raises; blocks until the end."""
        return self._op().exception()

    def result(self) -> None:
        """As `wait`: a collective has no value but its arrays."""
        self.wait()

    def __await__(self) -> Generator[Any, None, Any]:
        return self._op().__await__()

    def __repr__(self) -> str:
        state = "recorded" if self._mark is None else "done" if self.done() else "in flight"
        return f"<Work {self.name} {state}>"

    def _op(self) -> Op:
        if self._mark is None:
            raise RecordingError(
                f"{self.name} was recorded and has not run: wait after a launch of its graph"
            )
        return self._mark


def work_of(name: str, written: Sequence[Any]) -> Work:
    """The collective whose last steps, already pushed, write these arrays."""
    current: Any = engine()
    if isinstance(current, Recorder):
        return Work(name, None)
    return Work(name, current._mark(list(written)))
