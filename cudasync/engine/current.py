"""Floor 2. Where the calling thread is: its current engine, the ops it is inside of.

The current engine is that of a context (`with engine:`), else the one of the process.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from cudasync.atomic import Once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextvars import Token

    from cudasync.engine.engine import Engine
    from cudasync.engine.host.worker import Worker
    from cudasync.engine.op import Op

T = TypeVar("T")
_current: ContextVar[Engine | None] = ContextVar("cudasync engine", default=None)
# The engine of a `with`, None outside of any: for who asks at each operation, and then `engine`.
maybe_engine = _current.get


class _Default:
    """A cell for the engine of the process, and one for the cell that comes after it is closed."""

    __slots__ = ("engine", "following")

    def __init__(self) -> None:
        self.engine: Once[Engine] = Once()
        self.following: Once[_Default] = Once()


# A hint: the last of these cells, or one before it.
_default = _Default()
# Something if this thread may be inside an op: quicker to ask than `_here`, and asked first.
# A context that was copied to another thread says so there as well; `_here` knows better.
_place: ContextVar[object] = ContextVar("cudasync place", default=None)
maybe_inside = _place.get


_make: list[Callable[[], Engine]] = []


def make_with(make: Callable[[], Engine]) -> None:
    """`make()` is to give the process an engine of its own at the first need."""
    _make.append(make)


def engine() -> Engine:
    """The current engine: of the innermost `with`, else one for the whole process.

    A thread that is started inside of a `with` block is not inside of it: see `use`.
    """
    found = _current.get()
    if found is not None:
        return found
    global _default
    cell = _default
    while (default := cell.engine.get()) is not None and default._is_closed:
        # Somebody closed it: the next need is a need again.
        _default = cell = cell.following.offer(_Default())
    if default is None:
        made = _make[0]()
        default = cell.engine.offer(made)
        if default is not made:
            made.close()
    return default


def forget() -> None:
    """The process is to get a new engine of its own at the next need."""
    global _default
    _default = _Default()


@contextmanager
def use(engine: Engine) -> Iterator[Engine]:
    """Make `engine` current inside a `with` block, without closing it at the end.

    That is so for the calling thread or asyncio task, and for whatever begins inside with a copy of
    its context: tasks, `asyncio.to_thread`, `contextvars.copy_context().run`. A new thread begins
    without, and its current engine is that of the process; likewise a thread pool's. (From Python
    3.14 on, `-X thread_inherit_context` changes that.) A copy that outlives the block keeps the
    engine, which may be closed by then. In an op, the op's own engine is current.
    """
    token = _current.set(engine)
    nobody_minds: tuple[type[Exception], ...] = ()
    try:
        yield engine
    except GeneratorExit:
        # Ctrl-C struck before the block began, and what is left of it is collected: perhaps in
        # another context, where there is nothing to be undone.
        nobody_minds = (ValueError,)
        raise
    finally:
        with suppress(*nobody_minds):
            _current.reset(token)


def enter(engine: Engine) -> Token[Engine | None]:
    """Make `engine` current here until `leave`."""
    return _current.set(engine)


def leave(tokens: list[Token[Engine | None]]) -> None:
    """Take one out of what `enter` gave, the last of this context, and undo it.

    Where none is of this context, as when one task leaves a block that another entered, nothing
    is to be undone here.
    """
    for token in reversed(tokens):
        with suppress(ValueError):
            _current.reset(token)
            tokens.remove(token)
            return
    tokens.pop()


def enter_engine(engine: Engine | None) -> None:
    """A worker is about to run ops of `engine`; None when it is to hold none."""
    _current.set(engine)


class _Here(threading.local):
    """Whose functions and callbacks the calling thread is inside, the innermost last."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.worker: Worker | None = None
        self.is_ours = False


_here = _Here()


def worker() -> Worker | None:
    """The worker that the calling thread is, if it is one."""
    return _here.worker


def is_ours() -> bool:
    """True on a thread that the engine started: nobody is there to be interrupted."""
    return _here.is_ours


def inside() -> list[Op]:
    """The ops whose function or callback the calling thread runs, empty outside of any."""
    worker = _here.worker
    if worker is not None and worker.is_in_op:
        assert worker.op is not None
        return [worker.op, *_here.ops]
    return _here.ops


def is_in_op() -> bool:
    """True in the function of an op, be its engine of threads or serial."""
    if inside():
        return True
    found = _current.get()
    return found is not None and found._serial is not None and found._serial.is_mine()


def call(op: Op, fn: Callable[..., T], *args: object) -> T:
    """`fn(*args)`, the function of a device op or a callback, with the thread inside of `op`."""
    ops = _here.ops
    depth = len(ops)
    token = None
    # Not a context manager, which Ctrl-C can strike between its parts.
    try:
        ops.append(op)
        token = _place.set(op)
        return fn(*args)
    finally:
        del ops[depth:]
        if token is not None:
            _place.reset(token)


def call_with_its_engine(op: Op, fn: Callable[..., T], *args: object) -> T:
    """`call` for a function of the user's: it has the engine of `op`, whoever issues that."""
    before = _current.get()
    # Set twice, not reset by a token: Ctrl-C may come before that is noted.
    try:
        _current.set(op._engine)
        return call(op, fn, *args)
    finally:
        _current.set(before)


@contextmanager
def working(worker: Worker | None) -> Iterator[None]:
    """Around the life of a thread that the engine started."""
    _here.worker = worker
    _here.is_ours = True
    _place.set(worker)
    try:
        yield
    finally:
        _here.worker = None
