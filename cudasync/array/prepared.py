"""Floor 4. Launches that are prepared once and pushed again and again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync import driver
from cudasync.array.allocation import DEAD, reap
from cudasync.array.foreign import ForeignArray, seen, take_over_foreign
from cudasync.array.uses import NARROWED, accesses_of, push_otherwise
from cudasync.driver.lending import LENT
from cudasync.engine import Op, launching
from cudasync.engine.current import engine as current_engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.kernels import Kernel
    from cudasync.driver.kernel import Shape

_push = launching.push
_getframe = sys._getframe
_dead = DEAD.items


class PreparedLaunch(driver.Launch):
    """A launch whose shape and arguments were checked and packed once.

    `push()` pushes it onto the engine, `on(stream)` launches it on a stream of the caller's. It
    keeps its arguments alive.
    """

    __slots__ = ("_accesses", "_foreign", "_known")

    def __init__(self, kernel: Kernel, shape: Shape, args: Sequence[Any]) -> None:
        values = [seen(a.array if type(a) in NARROWED else a) for a in args]
        super().__init__(kernel, shape, kernel.packing.take(values), tuple(args))
        self._foreign = [value for value in values if isinstance(value, ForeignArray)]
        self._accesses = accesses_of(*kernel.uses(args, values), values)
        self._known = launching.Known()

    def push(self, *, name: str | None = None, priority: int = 0) -> Op:
        """Push the launch, with the arguments as they were when it was prepared; returns the op.

        Each call is an op of its own, and costs less than `kernel[grid, block](...)`.
        """
        if _dead or LENT:
            reap()
        kernel: Any = self.kernel
        engine = current_engine()
        if name is None:
            name = kernel.name
        if self._foreign:
            take_over_foreign(self._foreign)
        check = kernel.check
        if check is None and not priority and engine._is_direct:
            return _push(
                engine,
                self.on,
                self._accesses,
                name,
                kernel.device,
                _getframe(1),
                kernel.name,
                self._known,
            )
        issue = self.on if check is None else check(self.kept, self.on)
        return push_otherwise(engine, issue, kernel, self._accesses, name, priority)
