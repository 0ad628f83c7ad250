"""Floor 4, kernels. Launches that are prepared once and pushed again and again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cudasync import driver
from cudasync.array.allocation import DEAD, reap
from cudasync.array.interchange.cuda_array_interface import ForeignArray, seen, take_over_foreign
from cudasync.array.kernels.device_selection import placed
from cudasync.array.kernels.indirect_memory import Reach, reach_of, with_touched
from cudasync.array.kernels.launch_accesses import NARROWED, accesses_of, push_otherwise
from cudasync.driver.arguments.argument_packing import ask_order, managed
from cudasync.driver.interchange.dlpack_export import LENT
from cudasync.engine import Op, current
from cudasync.engine.current import engine as current_engine
from cudasync.engine.device import device_push
from cudasync.engine.log.histories import Known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.array.kernels.declared_accesses import Touched
    from cudasync.array.kernels.kernel import Kernel
    from cudasync.driver import Event
    from cudasync.driver.device import DeviceLike
    from cudasync.driver.kernels.kernel import Shape
    from cudasync.driver.streams.stream import StreamLike
    from cudasync.engine import Engine
    from cudasync.engine.batch.device import Batch
    from cudasync.engine.hazards.accesses import Accesses

_push = device_push.push
_getframe = sys._getframe
_dead = DEAD.items


class PreparedLaunch(driver.Launch):
    """A launch whose shape and arguments were checked and packed once.

    `push()` pushes it onto the engine. `on(stream)` launches it on a stream of the caller's, to
    which the arrays among its arguments were handed over. It keeps its arguments alive.
    """

    __slots__ = ("_accesses", "_foreign", "_known", "latest_batch")

    def __init__(
        self, kernel: Kernel, shape: Shape, args: Sequence[Any], values: Sequence[Any]
    ) -> None:
        super().__init__(kernel, shape, kernel.packing.take(values), tuple(args))
        self._foreign = [value for value in values if isinstance(value, ForeignArray)]
        self._accesses = accesses_of(kernel, args, *kernel.uses(args, values), values)
        self._known = Known()
        # The plan of `Engine.push_many` for the last batch that began with this launch.
        self.latest_batch: Batch | None = None
        if managed(values) and type(self) is PreparedLaunch:
            self.__class__ = _OfArrays

    # The launch as the engine issues it.
    _issue = driver.Launch.on

    def push(self, *, name: str | None = None, priority: int = 0) -> Op:
        """Push the launch, with the values that its arguments had when it was prepared; returns the
        op.

        Each call is an op of its own, and costs less than `kernel[grid, block](...)`.
        """
        if _dead or LENT:
            reap()
        kernel: Any = self.kernel
        engine = current_engine()
        if name is None:
            name = kernel.label
        if self._foreign:
            take_over_foreign(self._foreign)
        check = kernel.check
        if check is None and not priority and engine._is_direct:
            return _push(
                engine,
                self._issue,
                self._accesses,
                name,
                kernel.device,
                _getframe(1),
                kernel.name,
                self._known,
            )
        if check is not None:
            check(self.kept)
        return push_otherwise(engine, self._issue, kernel, self._accesses, name, priority)

    @property
    def is_steady(self) -> bool:
        """True if each push has the same accesses, and needs no preparation."""
        kernel: Any = self.kernel
        return kernel.check is None and not self._foreign

    def ready(self) -> Accesses:
        """Prepare for a push; returns the accesses of the launch."""
        self.tidy()
        kernel: Any = self.kernel
        if self._foreign:
            take_over_foreign(self._foreign)
        if kernel.check is not None:
            kernel.check(self.kept)
        return self._accesses

    @staticmethod
    def tidy() -> None:
        """Push the ends of arrays that died since."""
        if _dead or LENT:
            reap()

    def push_anywhere(self, engine: Engine, name: str | None, priority: int) -> Op:
        """`push` for callers that are not the user's own code."""
        kernel: Any = self.kernel
        accesses = self.ready()
        name = kernel.label if name is None else name
        return push_otherwise(engine, self._issue, kernel, accesses, name, priority)

    def touching(self, *, reads: Any = (), writes: Any = ()) -> PreparedLaunch:
        """The same launch, with the accesses that cannot be inferred: see `BoundKernel.touching`.
        It takes the current values of the arguments."""
        from cudasync.array.kernels.declared_accesses import Touched

        assert self.kept is not None
        kernel: Any = self.kernel
        shape = self.shape
        said = shape[:3], shape[3:6], shape[6]
        return prepared(kernel, said, self.kept, Touched(reads, writes), device=kernel.device)


class _OfArrays(PreparedLaunch):
    """A launch with arguments that the engine orders. Other launches skip the check of `on`."""

    __slots__ = ()

    def on(self, stream: StreamLike | None = None, event: Event | None = None) -> None:
        """`Launch.on`; outside of an op, ValueError for arrays that were not handed over."""
        if not current.is_in_op():
            kept = self.kept or ()
            ask_order(managed([a.array if type(a) in NARROWED else a for a in kept]), stream)
        super().on(stream, event)


class ReachingLaunch(_OfArrays):
    """A launch that reaches more than its array arguments; each push looks up that memory.

    The memory at an address, and the existing variables and devices, may change between pushes.
    """

    __slots__ = ("_addresses", "_by_arrays", "_reach", "_touched")

    def __init__(
        self,
        kernel: Kernel,
        shape: Shape,
        args: Sequence[Any],
        values: Sequence[Any],
        reach: Reach | None,
        touched: Touched | None,
    ) -> None:
        super().__init__(kernel, shape, args, values)
        self._reach = reach
        self._touched = touched
        self._addresses = [] if reach is None else reach.addresses(reach.looked_at(values))
        if touched is not None:
            self._foreign = [*self._foreign, *touched.foreign]

    @property
    def is_steady(self) -> bool:
        return False

    @property
    def _accesses(self) -> Accesses:
        touched = None if self._touched is None else self._touched.accesses
        if self._reach is None:
            return with_touched(self._by_arrays, touched)
        return self._reach.with_addresses(self._by_arrays, self._addresses, touched)

    @_accesses.setter
    def _accesses(self, accesses: Accesses) -> None:
        self._by_arrays = accesses


def prepared(
    kernel: Kernel,
    said: tuple[Sequence[int] | int, Sequence[int] | int, int],
    args: Sequence[Any],
    touched: Touched | None = None,
    *,
    device: DeviceLike | None = None,
) -> PreparedLaunch:
    """A launch with its arguments checked and packed, on the device of its memory.

    `said` is grid, block and dynamic shared memory. `touched` gives further accesses by hand.
    """
    values = [seen(a.array if type(a) in NARROWED else a) for a in args]
    there = placed(kernel, args, values, device)
    shape = there.shape(*said)
    there.get()
    if len(values) == there.packing.count:
        reach = reach_of(there, args, values)
        if reach is not None or touched is not None:
            return ReachingLaunch(there, shape, args, values, reach, touched)
    return PreparedLaunch(there, shape, args, values)
