"""Floor 1. `Owned`: the lifetime of a driver handle.

A handle lives until it is closed, its device is reset, or its owner is garbage. It is destroyed at
most once, however often and on whichever threads it is closed. A finaliser calls no driver
function: the garbage collector may run it anywhere, even inside a driver call. So it only notes the
handle, and the context destroys it later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.driver.context import here
from cudasync.driver.probe import forked
from cudasync.driver.result import failure
from cudasync.driver.streams.open_captures import Relaxed
from cudasync.errors import STICKY_CODES, ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.driver.context import Context

_DEINITIALIZED = 4


class Owned:
    """A handle with one owner.

    Code that runs once per op reads the fields itself, since a call of `ready` costs as much as the
    rest of that code. If `here.token is owned.token is owned.context.token`, the device was not
    reset, and its context is current on this thread. Otherwise, or if `raw` is None, `ready` makes
    the context current or raises.
    """

    __slots__ = (
        "__weakref__",
        "_blocking",
        "_claim",
        "_destroy",
        "_noun",
        "context",
        "raw",
        "token",
    )

    def __init__(
        self,
        context: Context,
        value: Any,
        destroy: Callable[[Any], Any],
        *,
        noun: str,
        blocking: bool,
    ) -> None:
        self.context = context
        self._noun = noun
        self._destroy = destroy
        # True if destroying may wait for work of the device.
        self._blocking = blocking
        # The life of the context that the handle was made in and ends with: the life that this
        # thread has entered, since the device may have been reset meanwhile.
        self.token = here.token
        # The handle; None once it is closed.
        self.raw: Any = value
        # A list of one. list.pop is one C call, so exactly one of several threads gets the value.
        self._claim = [value]

    def get(self) -> Any:
        """The handle. Raises ClosedError once it is closed, or its device was reset."""
        raw = self.raw
        if self.token is not self.context.token:
            raise ClosedError(f"a reset of its device destroyed the {self._noun}: make another")
        if raw is None:
            raise ClosedError(f"the {self._noun} is closed: make another")
        return raw

    def ready(self) -> Any:
        """The handle, with its context current on this thread. Raises as `get` does."""
        self.context.enter()
        return self.get()

    @property
    def is_closed(self) -> bool:
        return self.raw is None or self.token is not self.context.token

    def close(self, destroy: Callable[[Any], Any] | None = None) -> None:
        """Destroy the handle, with `destroy` if given; harmless if it is destroyed already.

        Failures of earlier work are not reported here (every driver call repeats a sticky error):
        waits for that work report them.
        """
        try:
            value = self._claim.pop()
        except IndexError:
            return
        self.raw = None
        if self.token is not self.context.token or forked():
            return
        self.context.enter()
        # Drivers refuse many destructions while a stream is captured, also one of another thread.
        with Relaxed():
            code = (destroy or self._destroy)(value)[0]
        if code and int(code) not in STICKY_CODES and int(code) != _DEINITIALIZED:
            raise failure(code, f"destroying a {self._noun}")

    def __del__(self) -> None:
        # Attributes may be missing (construction failed) and modules half gone (interpreter
        # exit): nothing here needs a global, and nothing here may raise.
        try:
            life = self.token
            if self._claim and life is not None and life is self.context.token:
                garbage = life.blocking_garbage if self._blocking else life.garbage
                garbage.append((self._destroy, self._claim.pop()))
        except Exception:
            return


def leave(_: Any) -> tuple[int]:
    """As `destroy`, does nothing: the driver has done it, or another library owns the handle."""
    return (0,)
