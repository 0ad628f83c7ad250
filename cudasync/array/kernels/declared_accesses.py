"""Floor 4. Accesses of a launch that the caller declares because they cannot be inferred."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.allocation import reap
from cudasync.array.interchange.cuda_array_interface import ForeignArray, seen
from cudasync.array.kernels.prepared_launch import prepared
from cudasync.engine.current import engine as current_engine
from cudasync.engine.hazards.interval_map import keep_what_lies_between
from cudasync.engine.hazards.variable import as_tuple, resolve

if TYPE_CHECKING:
    from cudasync.array.kernels.kernel import BoundKernel
    from cudasync.array.kernels.prepared_launch import PreparedLaunch
    from cudasync.driver.device import DeviceLike
    from cudasync.engine import Op
    from cudasync.engine.hazards.accesses import Accesses


class Touched:
    """Arrays and variables that a launch reads and writes, as the caller declares them.

    It keeps them alive. Raises TypeError for objects without bytes, ValueError for read-only memory
    among the writes.
    """

    __slots__ = ("accesses", "foreign", "kept")

    accesses: Accesses

    def __init__(self, reads: Any, writes: Any) -> None:
        read = [seen(each) for each in as_tuple(reads)]
        written = [seen(each) for each in as_tuple(writes)]
        for each in written:
            if getattr(each, "is_read_only", False):
                raise ValueError(
                    f"a {type(each).__name__} in writes= is read-only: give a writable array"
                )
        self.kept = (*read, *written)
        self.foreign = [each for each in self.kept if isinstance(each, ForeignArray)]
        variables, regions = resolve(read, "reads")
        written_variables, written_regions = resolve(written, "writes")
        self.accesses = (
            keep_what_lies_between(
                tuple(each for each in regions if each not in written_regions),
                tuple(each for each in regions if each in written_regions),
                tuple(each for each in written_regions if each not in regions),
            ),
            tuple(variables),
            tuple(written_variables),
        )


class Touching:
    """A kernel with its launch shape, and with the accesses that cannot be inferred."""

    __slots__ = ("_bound", "_touched")

    def __init__(self, bound: BoundKernel, reads: Any, writes: Any) -> None:
        self._bound = bound
        self._touched = Touched(reads, writes)

    def __call__(
        self,
        *args: Any,
        name: str | None = None,
        priority: int = 0,
        device: DeviceLike | None = None,
    ) -> Op:
        """Push a launch with these arguments; returns the op at once. Raises whatever `kernel[grid,
        block](*args)` raises."""
        reap()
        return self._prepared(args, device).push_anywhere(current_engine(), name, priority)

    def _prepared(self, args: tuple[Any, ...], device: DeviceLike | None) -> PreparedLaunch:
        bound = self._bound
        said = bound.grid, bound.block, bound.shared_bytes
        return prepared(bound.kernel, said, args, self._touched, device=device)

    def __repr__(self) -> str:
        return f"<{self._bound!r} touching {len(self._touched.kept)} more>"
