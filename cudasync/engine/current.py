"""Floor 2. The calling thread's current engine, and the ops whose functions it is inside.

The current engine is the engine of the context (`with engine:`), else the engine of the process.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from cudasync.atomic import Once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextvars import Token

    from cudasync.engine.engine import Engine
    from cudasync.engine.host.worker import Worker
    from cudasync.engine.op import Op

T = TypeVar("T")
_current: ContextVar[Engine | None] = ContextVar("cudasync engine", default=None)
# The engine of a `with`, None outside: for callers that ask at each operation, before `engine`.
maybe_engine = _current.get


class _Default:
    """A cell for the engine of the process, and a cell for the successor of a closed engine."""

    __slots__ = ("engine", "following")

    def __init__(self) -> None:
        self.engine: Once[Engine] = Once()
        self.following: Once[_Default] = Once()


# A hint: the last of these cells, or an earlier one.
_default = _Default()
# Not None if this thread may be inside an op: a faster check than `_here`, made first. A context
# copied to another thread has it there as well; `_here` is exact.
_place: ContextVar[object] = ContextVar("cudasync place", default=None)
maybe_inside = _place.get


_make: list[Callable[[], Engine]] = []


def make_with(make: Callable[[], Engine]) -> None:
    """Use `make()` to make the engine of the process at the first need."""
    _make.append(make)


def engine() -> Engine:
    """The current engine: the engine of the innermost `with`, else the engine of the process.

    A thread that starts inside a `with` block does not inherit its engine: see `use`.
    """
    found = _current.get()
    if found is not None:
        return found
    global _default
    cell = _default
    while (default := cell.engine.get()) is not None and default._is_closed:
        # Somebody closed the engine: a new one is needed.
        _default = cell = cell.following.offer(_Default())
    if default is None:
        made = _make[0]()
        default = cell.engine.offer(made)
        if default is not made:
            made.close()
    return default


# True in a forked child. Code that the parent began goes on there, and leaves `with` blocks.
_is_child = False


def start_anew() -> None:
    """In a forked child: forget the engines of the parent, and its ops.

    The calling thread is the only one, also if it was a worker inside an op. A recording that it is
    in ends.
    """
    global _default, _is_child
    _default, _is_child = _Default(), True
    found: Any = _current.get()
    # A recorder stands for the engine outside.
    while (outside := getattr(found, "outside", None)) is not None:
        found.end()
        found = outside
    _current.set(None)
    _place.set(None)
    _here.__init__()  # type: ignore[misc]


def _forget_parents() -> None:
    """In a forked child a block was left: its outer block may be one of the parent's engine."""
    found = _current.get()
    if found is not None and found._is_closed:
        _current.set(None)


def use(engine: Engine) -> AbstractContextManager[Engine]:
    """Make `engine` current inside a `with` block, without closing it at the end.

    This holds for the calling thread or asyncio task, and for code that begins inside with a copy
    of its context: tasks, `asyncio.to_thread`, `contextvars.copy_context().run`. In a new thread,
    also of a thread pool, the engine of the process is current. (From Python 3.14 on,
    `-X thread_inherit_context` changes that.) A context copy that outlives the block keeps the
    engine, which may be closed by then. In an op, the op's own engine is current. In a recording
    the recorded engine stays current, and another engine raises RecordingError.
    """
    recorder: Any = _current.get()
    if recorder is not None and recorder.mode == "recording":
        engine = recorder.in_place_of(engine)
    return using(engine)


@contextmanager
def using(engine: Engine) -> Iterator[Engine]:
    """`use`, also for the engine of an op that runs while its thread records."""
    before = _current.get()
    token = None
    is_collected = False
    try:
        token = _current.set(engine)
        yield engine
    except GeneratorExit:
        # Ctrl-C struck before the block began, and the generator is collected: perhaps in another
        # context, where nothing has to be undone.
        is_collected = True
        raise
    finally:
        # One call of C, and no call before it: Ctrl-C may come behind each.
        if token is None:
            # It came before the token was stored.
            _current.set(before)
        else:
            try:
                _current.reset(token)
            except ValueError:
                if not is_collected:
                    raise
        if _is_child:
            _forget_parents()


def enter(engine: Engine) -> Token[Engine | None]:
    """Make `engine` current here until `leave`."""
    return _current.set(engine)


def leave(tokens: list[Token[Engine | None]]) -> None:
    """Remove the last token of this context from `tokens`, and undo its `enter`.

    If no token is of this context, as when one task leaves a block that another task entered,
    nothing has to be undone here.
    """
    for token in reversed(tokens):
        with suppress(ValueError):
            _current.reset(token)
            tokens.remove(token)
            if _is_child:
                _forget_parents()
            return
    tokens.pop()


def enter_engine(engine: Engine | None) -> None:
    """A worker is about to run ops of `engine`; with None it keeps no engine."""
    _current.set(engine)


class _Here(threading.local):
    """The ops whose functions and callbacks the calling thread is inside, the innermost last."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.worker: Worker | None = None
        # Stands for this thread while it runs an op that it waits for: see `host.run_by_waiter`.
        self.guest: Worker | None = None
        self.is_ours = False


_here = _Here()


def worker() -> Worker | None:
    """The worker of the calling thread; None if the thread is no worker."""
    return _here.worker


def worker_or_guest() -> Worker | None:
    """The worker of the calling thread, or the stand-in for one while the thread runs a host op
    that it waits for. While that op waits, another thread needs its permit."""
    return _here.worker or _here.guest


def is_ours() -> bool:
    """True on a thread that the engine started: no program runs there that Ctrl-C could end."""
    return _here.is_ours


def is_of_thread(error: BaseException) -> bool:
    """True for Ctrl-C on a thread of the program, which it must end there. Any other exception, and
    every exception on a thread of the engine, belongs to the function that it came from."""
    return isinstance(error, KeyboardInterrupt) and not _here.is_ours


def inside() -> list[Op]:
    """The ops whose function or callback the calling thread runs; empty if there are none."""
    worker = _here.worker
    if worker is not None and worker.is_in_op:
        assert worker.op is not None
        return [worker.op, *_here.ops]
    return _here.ops


def is_in_op() -> bool:
    """True in the function of an op, on an asynchronous or a serial engine."""
    if inside():
        return True
    found = _current.get()
    return found is not None and found._serial is not None and found._serial.is_mine()


def call(op: Op, fn: Callable[..., T], *args: object) -> T:
    """Call a device op's function or a callback, `fn(*args)`, with the thread inside `op`."""
    ops = _here.ops
    depth = len(ops)
    token = None
    # Not a context manager, because Ctrl-C can come between its parts.
    try:
        ops.append(op)
        token = _place.set(op)
        return fn(*args)
    finally:
        del ops[depth:]
        if token is not None:
            _place.reset(token)


def call_as_guest(guest: Worker, op: Op, fn: Callable[[], T]) -> T:
    """Call a host op's function as a worker would, on a thread that waits for `op`. In a context
    that ends with the call."""
    _current.set(op._engine)
    try:
        _here.guest = guest
        return call(op, fn)
    finally:
        _here.guest = None


def call_with_its_engine(op: Op, fn: Callable[..., T], *args: object) -> T:
    """`call` for a user's function: the engine of `op` is current, whichever thread issues it."""
    before = _current.get()
    # Set twice, not reset by a token: Ctrl-C may come before the token is stored.
    try:
        _current.set(op._engine)
        return call(op, fn, *args)
    finally:
        _current.set(before)


@contextmanager
def working(worker: Worker | None) -> Iterator[None]:
    """Around the whole run of a thread that the engine started."""
    _here.worker = worker
    _here.is_ours = True
    _place.set(worker)
    try:
        yield
    finally:
        _here.worker = None
