"""Floor 1. A launch: a kernel, its shape and its arguments, enqueued on a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.packing import PreparedArguments
from cudasync.driver.result import failure
from cudasync.driver.stream import Stream, as_stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.driver.kernel import Kernel
    from cudasync.driver.stream import StreamLike


def launch(
    kernel: Kernel,
    *,
    grid: Sequence[int] | int,
    block: Sequence[int] | int = (1,),
    args: Sequence[Any] | PreparedArguments = (),
    stream: StreamLike | None = None,
    shared_bytes: int = 0,
) -> None:
    """Launch `kernel` in the order of `stream` and return at once.

    `grid` (in blocks) and `block` (in threads) are one to three integers; `shared_bytes` is the
    dynamic shared memory of each block. `args` has one value per parameter: a NumPy scalar of
    the parameter's width, a Python number, for a pointer anything with `.ptr` or
    `__cuda_array_interface__`, for a struct its bytes; or what `kernel.pack` made. Without a
    stream: the current one of the kernel's device.

    Raises TypeError for a wrong number or type of arguments; ValueError for a value out of range,
    for a shape past a limit, for a stream of another device; ClosedError for what is closed; all
    of that before the driver is asked. What goes wrong while the kernel runs is raised by whoever
    waits for it. (cuLaunchKernel)
    """
    shape = kernel.shape(grid, block, shared_bytes)
    on = stream if type(stream) is Stream else as_stream(stream, kernel.device)
    if on.device is not kernel.device:
        raise ValueError(
            f"kernel {kernel.name} is loaded on {kernel.device!r}, the stream is of {on.device!r}"
        )
    function = kernel.get()
    raw = on.enter()
    packing = kernel.packing
    if type(args) is PreparedArguments:
        if args.packing is not packing:
            raise ValueError(f"the arguments were packed for another kernel than {kernel.name}")
        code = driver.cuLaunchKernel(function, *shape, raw, args.block.address, 0)[0]
    else:
        prepared = packing.take(args)  # type: ignore[arg-type]
        code = driver.cuLaunchKernel(function, *shape, raw, prepared.address, 0)[0]
        packing.give(prepared)
    if code:
        raise failure(code, "cuLaunchKernel")
