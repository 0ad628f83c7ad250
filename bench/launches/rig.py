"""One burst of launches and every way to issue it, for bench_launch.

The raw launches have arguments packed once, and use one stream in order. The pushes go to an engine
that finds the order itself. Their arrays and packed arguments are made once, too.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from cuda.bindings import driver

import cudasync as cs
from bench.launches import bursts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack

    from bench.launches.bursts import Burst

    Calls = list[Callable[[], object]]

# The enqueuing calls, which `without_driver` leaves out.
ENQUEUING = ("cuLaunchKernel", "cuGraphLaunch", "cuEventRecord", "cuStreamWaitEvent")


class Rig:
    """The objects of one burst, and its calls in each way, one call a launch."""

    def __init__(
        self, closing: ExitStack, engine: cs.Engine, kernel: cs.Kernel, burst: Burst, elements: int
    ) -> None:
        self.burst = burst
        self.engine = engine
        self._kernel = kernel
        self.shape = ((elements // bursts.BLOCK,), (bursts.BLOCK,))
        self._first = bursts.first_values(burst, elements)
        self._raw = bursts.Raw(closing, burst, elements, kernel)
        self.stream = cs.Stream(kernel.device)
        self._event = cs.Event(kernel.device)
        closing.callback(self.stream.close)
        closing.callback(self._event.close)
        self._handle = driver.CUstream(self.stream.handle)
        self._arrays = [cs.array(row) for row in self._first]
        closing.callback(self._arrays.clear)

    def reset(self) -> None:
        """Give all arrays their first values."""
        self._raw.reset()
        for array, row in zip(self._arrays, self._first, strict=True):
            cs.copy(array, row)
        self.engine.waitall()

    def drain(self) -> None:
        """Wait for all enqueued work, in any way."""
        self.stream.synchronize()
        self.engine.waitall()

    def raw_checksum(self) -> int:
        return bursts.checksum_of(self._raw.rows())

    def arrays_checksum(self) -> int:
        return bursts.checksum_of([array.numpy() for array in self._arrays])

    def raw_pointers(self) -> list[tuple[cs.DeviceBuffer, cs.DeviceBuffer]]:
        """The arguments of each launch, in the memory of the raw launches."""
        return [self._raw.pointers(source, target) for source, target in self.burst]

    def raw_launches(self) -> Calls:
        return [
            # `cuLaunchKernel` is looked up at each call, as a program looks up
            # `driver.cuLaunchKernel`.
            launched(self._raw.arguments(source, target, self._handle))
            for source, target in self.burst
        ]

    def raw_launches_and_records(self) -> Calls:
        event, stream = driver.CUevent(self._event.handle), self._handle

        def recorded(launch: Callable[[], object]) -> Callable[[], object]:
            def call() -> None:
                launch()
                driver.cuEventRecord(event, stream)

            return call

        return [recorded(launch) for launch in self.raw_launches()]

    def prepared_launches(self) -> Calls:
        """Launches that `Kernel.prepare` checked and packed once, on one stream."""
        stream = self.stream

        def direct(launch: cs.driver.Launch) -> Callable[[], object]:
            return lambda: launch.on(stream)

        return [direct(self._prepare(*pointers)) for pointers in self.raw_pointers()]

    def pushes(self) -> Calls:
        """`engine.push` of launches prepared once."""
        device, push = self._kernel.device, self.engine.push

        def pushed(left: cs.Array, right: cs.Array) -> Callable[[], object]:
            enqueue = self._prepare(left, right).on
            reads, writes = (left, right), (right,)
            return lambda: push(enqueue, reads=reads, writes=writes, device=device)

        return [pushed(self._arrays[left], self._arrays[right]) for left, right in self.burst]

    def prepared_pushes(self) -> Calls:
        """`.push()` of launches prepared once."""
        return [
            self._prepare(self._arrays[left], self._arrays[right]).push
            for left, right in self.burst
        ]

    def batches(self, size: int) -> Calls:
        """The burst in batches of `size` prepared launches, each batch one op."""
        return self._pushed_at_once(
            [self._prepare(self._arrays[left], self._arrays[right]) for left, right in self.burst],
            size,
        )

    def batches_of_functions(self, size: int) -> Calls:
        """The same with functions of a stream, and their reads and writes."""
        device = self._kernel.device
        steps = []
        for left, right in self.burst:
            used = self._arrays[left], self._arrays[right]
            steps.append((self._prepare(*used).on, used, used[1:], device))
        return self._pushed_at_once(steps, size)

    def _pushed_at_once(self, steps: list, size: int) -> Calls:
        return [partial(self.engine.push_many, batch) for batch in groups(steps, size)]

    def _prepare(self, *args: object) -> cs.driver.Launch:
        grid, block = self.shape
        return self._kernel.prepare(grid=grid, block=block, args=args)

    def kernel_calls(self) -> Calls:
        """`kernel[grid, block](...)`, the whole call each time."""
        kernel = self._kernel
        grid, block = self.shape

        def called(left: cs.Array, right: cs.Array) -> Callable[[], object]:
            return lambda: kernel[grid, block](left, right)

        return [called(self._arrays[left], self._arrays[right]) for left, right in self.burst]

    def kept_kernel_calls(self) -> Calls:
        """The same with `kernel[grid, block]` made once."""
        grid, block = self.shape
        kept = self._kernel[grid, block]

        def called(left: cs.Array, right: cs.Array) -> Callable[[], object]:
            return lambda: kept(left, right)

        return [called(self._arrays[left], self._arrays[right]) for left, right in self.burst]


def groups(steps: list, size: int) -> list[tuple]:
    """The steps in order, in groups of `size`."""
    return [tuple(steps[at : at + size]) for at in range(0, len(steps), size)]


def launched(arguments: tuple) -> Callable[[], object]:
    """A raw launch, ready to be called."""
    return lambda: driver.cuLaunchKernel(*arguments)


@contextmanager
def without_driver(*more: str) -> Iterator[None]:
    """Make enqueuing calls, and `more`, return success at once without any work, so that only
    Python remains."""
    success = (driver.CUresult.CUDA_SUCCESS,)
    originals = {name: getattr(driver, name) for name in (*ENQUEUING, *more)}

    def nothing(*arguments: object) -> tuple:
        return success

    for name in originals:
        setattr(driver, name, nothing)
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(driver, name, function)
