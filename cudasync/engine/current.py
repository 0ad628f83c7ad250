"""Floor 2. The current engine: of a context, else the one of the process."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from cudasync.atomic import Once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.engine.engine import Engine
    from cudasync.engine.op import Op

_current: ContextVar[Engine | None] = ContextVar("cudasync engine", default=None)
_default: Once[Engine] = Once()


def get(make: Callable[[], Engine]) -> Engine:
    """The current engine; `make()` gives the process its own at the first need."""
    engine = _current.get()
    if engine is not None:
        return engine
    cell = _default
    default = cell.get()
    if default is not None and default.is_closed:
        # Somebody closed it: the next need is a need again.
        forget()
        return get(make)
    if default is None:
        made = make()
        default = cell.offer(made)
        if default is not made:
            made.close()
    return default


def forget() -> None:
    """The process is to get a new engine of its own at the next need."""
    global _default
    _default = Once()


@contextmanager
def use(engine: Engine) -> Iterator[Engine]:
    """Make `engine` current inside the `with` block, for this thread or asyncio task."""
    token = _current.set(engine)
    try:
        yield engine
    finally:
        _current.reset(token)


class _Here(threading.local):
    """Whose functions and callbacks the calling thread is inside, the innermost last."""

    def __init__(self) -> None:
        self.ops: list[Op] = []


_here = _Here()


def inside() -> list[Op]:
    """The ops whose function or callback the calling thread runs, empty outside of any."""
    return _here.ops


@contextmanager
def running(op: Op) -> Iterator[None]:
    """Around the function, or a callback, of `op`."""
    ops = _here.ops
    ops.append(op)
    try:
        yield
    finally:
        ops.pop()
