"""Floor 1. A launch: a kernel, its shape and its arguments, enqueued on a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.arguments.argument_packing import PreparedArguments, ask_order
from cudasync.driver.context import here
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.driver.result import failure
from cudasync.driver.streams.chosen_stream import as_stream
from cudasync.driver.streams.stream import Stream

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cudasync.driver.arguments.argument_packing import Block
    from cudasync.driver.device import Device
    from cudasync.driver.kernels.kernel import Kernel, Shape
    from cudasync.driver.streams.event import Event
    from cudasync.driver.streams.stream import StreamLike


_NOWHERE = object()
# The position of the stream among cuLaunchKernel's arguments.
STREAM = 8


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
    dynamic shared memory of each block. `args` has one value per parameter: a NumPy scalar of the
    parameter's width or a Python number; for a pointer an object with `.ptr` or
    `__cuda_array_interface__`; for a struct its bytes. Or `args` is the result of `kernel.pack`.
    Without a stream: the current stream of the kernel's device.

    Raises TypeError for a wrong number or type of arguments; ValueError for a value out of range,
    for a shape past a limit, for a stream or memory of another device, and for an engine's array
    that was not handed over to the stream; ClosedError for a closed object; all before the driver
    is called. Waits for the kernel raise the failures of its run. (cuLaunchKernel)
    """
    grid_x, grid_y, grid_z, x, y, z, shared = kernel.shape(grid, block, shared_bytes)
    raw = ready(kernel, stream)
    packing = kernel.packing
    taken = None
    if type(args) is PreparedArguments:
        if args.packing is not packing:
            raise ValueError(
                f"the arguments were packed for another kernel: pack them with {kernel.name}"
            )
        if args.managed:
            ask_order(args.managed, stream)
        address = args.block.address
    else:
        taken = packing.take(args, stream)  # type: ignore[arg-type]
        address = taken.address
    code = driver.cuLaunchKernel(
        kernel.function, grid_x, grid_y, grid_z, x, y, z, shared, raw, address, 0
    )[0]
    if taken is not None:
        packing.give(taken)
    if code:
        raise failure(code, "cuLaunchKernel")


@unpicklable("send the PTX and the values of the arguments, and prepare the launch there")
class Launch:
    """A kernel with its shape and arguments, checked and packed once; `kernel.prepare` makes it.

    It may be launched any number of times, from any thread, each time with the same arguments. It
    keeps them alive, but not until the kernel has run.

    With a `home` it is valid for one launch of the arguments in `block`. Then it appends itself to
    `home`, to be packed anew.
    """

    __slots__ = ("_context", "_home", "_latest", "block", "head", "kept", "kernel", "module")

    def __init__(
        self,
        kernel: Kernel,
        shape: Shape,
        block: Block,
        kept: Sequence[Any] | None,
        home: deque[Launch] | None = None,
    ) -> None:
        self.kernel = kernel
        self.block = block
        self.kept = kept
        self._home = home
        # The driver's leading arguments, which do not depend on the stream.
        self.head = (kernel.function, *shape)
        self.module = kernel.module.owned
        self._context = kernel.module.owned.context
        # The handle of its last stream, an object of that stream alone; the life of the context;
        # and the driver's arguments then.
        self._latest: tuple[object, object, tuple[Any, ...]] = (_NOWHERE, None, ())

    @property
    def shape(self) -> Shape:
        """Grid, block and dynamic shared memory."""
        _, grid_x, grid_y, grid_z, x, y, z, shared = self.head
        return grid_x, grid_y, grid_z, x, y, z, shared

    def on(self, stream: StreamLike | None = None, event: Event | None = None) -> None:
        """Launch in the order of `stream`, by default the device's current one; return at once.

        With an `event`, record it behind the launch. Raises ValueError for a stream or event of
        another device, ClosedError for a closed object. (cuLaunchKernel, cuEventRecord)
        """
        latest, token, call = self._latest
        if not (
            stream.__class__ is Stream
            and (owned := stream._owned) is not None
            and owned.raw is latest
            and here.token is token is self._context.token
            and self.module.raw is not None
        ):
            call = self._on_another(stream)
        code = driver.cuLaunchKernel(*call)[0]
        home = self._home
        if home is not None:
            # cuLaunchKernel has read the arguments: the block can be reused.
            self.kept = None
            home.append(self)
        if code:
            raise failure(code, "cuLaunchKernel")
        if event is not None:
            theirs = event.owned
            if here.token is theirs.token and theirs.raw is not None:
                code = driver.cuEventRecord(theirs.raw, call[STREAM])[0]
                if code:
                    raise failure(code, "cuEventRecord")
                event.was_recorded = True
            else:
                event.record(stream)

    def kept_for_good(self) -> Launch:
        """The same launch with the same arguments, unchangeable, for repeated launches. If `self`
        has a home, `self` does not return there and must not be launched any more."""
        return Launch(self.kernel, self.shape, self.block, self.kept)

    def alike(self) -> tuple[object, ...]:
        """A key: launches with equal keys do the same. Valid while the kernel is loaded."""
        return self.kernel, *self.shape, self.kernel.packing.packed(self.block)

    def words(self) -> Iterator[tuple[int, int]]:
        """The words of the arguments that may be addresses, each with its offset."""
        return self.kernel.packing.words(self.block)

    def value_words(self) -> frozenset[int]:
        """The offsets of those words that were given as values: see `Packing.value_words`."""
        return self.kernel.packing.value_words(self.kept)

    def aimed(self, address: Callable[[int, int], int] | None, values: Mapping[int, Any]) -> Launch:
        """The same launch with other arguments: `address` maps each word that may be an address,
        given its offset and value, and `values` replaces arguments by position. It keeps none of
        them alive."""
        block = self.kernel.packing.aimed(self.block, address, values)
        return Launch(self.kernel, self.shape, block, None)

    def elsewhere(self, device: Device) -> Launch:
        """The same launch on another device, with the same arguments.

        Raises the errors of loading the kernel there, and ValueError for a shape past a limit.
        """
        kernel = self.kernel.on(device)
        x, y, z, *block, shared = self.shape
        shape = kernel.shape((x, y, z), tuple(block), shared)
        return Launch(kernel, shape, kernel.packing.aimed(self.block, None, {}), self.kept)

    def _on_another(self, stream: StreamLike | None) -> tuple[Any, ...]:
        """The driver's arguments for another stream than the last, or after a failed fast check."""
        raw = ready(self.kernel, stream)
        call = (*self.head, raw, self.block.address, 0)
        if type(stream) is Stream and stream._owned is not None:
            self._latest = (raw, stream._owned.token, call)
        return call

    def __repr__(self) -> str:
        _, x, y, z, *block, _ = self.head
        return f"<Launch of {self.kernel.name}, grid {(x, y, z)}, block {tuple(block)}>"


def ready(kernel: Kernel, stream: StreamLike | None) -> Any:
    """The handle of `stream`, ready for a launch of `kernel`; raises the errors of `launch`."""
    if type(stream) is Stream:
        owned, module = stream._owned, kernel.module.owned
        if (
            owned is not None
            and here.token is owned.token is module.token is module.context.token
            and module.raw is not None
        ):
            raw = owned.raw
            if raw is not None:
                return raw
    on = stream if type(stream) is Stream else as_stream(stream, kernel.device)
    if on.device is not kernel.device:
        raise ValueError(
            f"kernel {kernel.name} is loaded on {kernel.device!r}, the stream on {on.device!r}: "
            "use a stream of the kernel's device"
        )
    kernel.get()
    return on.enter()
