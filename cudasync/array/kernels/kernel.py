"""Floor 4, kernels. Kernels that are called on arrays: `kernel[grid, block](*args)` is a push.

A call runs on the device of its arrays; `device_selection.py` finds that device. The reads and
writes of a call are inferred from the PTX, parameter by parameter, when the module is loaded. `In`,
`Out` and `InOut` narrow them by hand where inference must be cautious.

Work that does not depend on the call is done once: a shape is checked at its first use. Each
combination of argument types has one function that packs the arguments and returns the reads and
writes of the launch.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync import driver
from cudasync.array.allocation import DEAD, reap
from cudasync.array.array import Array
from cudasync.array.interchange.cuda_array_interface import ForeignArray, seen, take_over_foreign
from cudasync.array.kernels.checked_mode import check_of
from cudasync.array.kernels.declared_accesses import Touching
from cudasync.array.kernels.device_selection import placed
from cudasync.array.kernels.indirect_memory import reach_of
from cudasync.array.kernels.launch_accesses import (
    NARROWED,
    READS_WRITES,
    accesses_of,
    declared,
    parts,
    push_otherwise,
    reasoned,
)
from cudasync.array.kernels.prepared_launch import PreparedLaunch, prepared
from cudasync.array.kernels.replayed import captured
from cudasync.array.replay import piece_of
from cudasync.driver.arguments.argument_packing import OUT_OF_RANGE, PackerTable, Packing
from cudasync.driver.interchange.dlpack_export import LENT
from cudasync.driver.ownership.unpicklable import unpicklable
from cudasync.engine.current import engine as current_engine
from cudasync.engine.current import maybe_engine
from cudasync.engine.device import device_push
from cudasync.engine.hazards.interval_map import keep_what_lies_between
from cudasync.engine.hazards.variable import resolve_one
from cudasync.engine.replay import tape as tapes
from cudasync.engine.replay.run import JoinedLaunch
from cudasync.engine.replay.sequence import drop_all_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from cudasync.array.kernels.launch_accesses import Uses
    from cudasync.array.kernels.modules import Module
    from cudasync.driver import Device, Launch, Parameter
    from cudasync.driver.arguments.argument_packing import Packer
    from cudasync.driver.device import DeviceLike
    from cudasync.driver.kernels.kernel import Shape
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.op import Op
    from cudasync.engine.replay.sequence import Call, Piece, Step
    from cudasync.ptx.types import Access


# The number of shapes for which a kernel keeps its bound kernels.
_MOST_SHAPES = 256

_local = tapes.LOCAL
_new_op = JoinedLaunch.__new__
_push = device_push.push
_getframe = sys._getframe
_dead = DEAD.items


class Kernel(driver.Kernel):
    """A kernel of a module; `kernel[grid, block](*args)` pushes a launch onto the engine."""

    module: Module

    def __init__(
        self,
        module: driver.Module,
        name: str,
        function: Any,
        parameters: tuple[Parameter, ...],
        symbols: Mapping[str, Access],
        beyond: str = "",
    ) -> None:
        super().__init__(module, name, function, parameters, symbols, beyond)
        # Each packer packs arguments, and returns the reads and writes of the launch.
        self.calls = PackerTable(self.packing, self._call_packer)
        self._bound: dict[Any, BoundKernel] = {}
        # Holds calls to their declarations; None outside of checked mode.
        self.check: Callable[[Any], None] | None = check_of(self, declared)
        self._with_peers: Kernel | None = None
        life = module.owned.token
        if life is not None:
            life.refusing.append(weakref.ref(self))
        if module.is_closed:
            # The module was closed, or its device reset, before that.
            self.refuse()

    @property
    def with_peers(self) -> Kernel:
        """The same kernel, for memory of any device. The caller has enabled peer access."""
        twin = self._with_peers
        if twin is None:
            twin = type(self)(
                self.module, self.name, self.function, self.parameters, self.symbols, self.beyond
            )
            twin.label = self.label
            twin.packing = Packing(self.name, self.parameters)
            twin.calls = PackerTable(twin.packing, twin._call_packer)
            self._with_peers = twin
        return twin

    def refuse(self) -> None:
        """Have calls and prepared launches raise ClosedError: the module is closed, or was lost in
        a
        reset of its device.

        They raise before they push anything. Calls of other kernels pay nothing for this.
        """
        self.check = self._raise_closed
        drop_all_of(self)
        if self._with_peers is not None:
            self._with_peers.refuse()

    def _raise_closed(self, _: Any) -> None:
        self.get()

    def __getitem__(self, shape: Any) -> BoundKernel:
        """`kernel[grid, block]` or `kernel[grid, block, shared_bytes]`, counts of blocks and of
        threads per block as integers or tuples of up to three."""
        try:
            return self._bound[shape]
        except (KeyError, TypeError):  # TypeError: a list in the shape, which is allowed.
            pass
        if not isinstance(shape, tuple) or not 2 <= len(shape) <= 3:
            raise TypeError(
                "write kernel[grid, block](...) or kernel[grid, block, shared_bytes](...): "
                "blocks, and threads of each block"
            )
        return BoundKernel(self, shape[0], shape[1], shape[2] if len(shape) == 3 else 0)

    def keep(self, bound: BoundKernel) -> None:
        """Let later look-ups of the checked shape of `bound` find it."""
        grid, block, shared = bound.grid, bound.block, bound.shared_bytes
        with suppress(TypeError):  # A list cannot be looked up.
            if len(self._bound) >= _MOST_SHAPES:
                self._bound.clear()
            self._bound[(grid, block, shared) if shared else (grid, block)] = bound

    def prepare(
        self,
        *,
        grid: Sequence[int] | int,
        block: Sequence[int] | int = (1,),
        args: Sequence[Any] = (),
        shared_bytes: int = 0,
        device: DeviceLike | None = None,
    ) -> PreparedLaunch:
        """Check and pack a whole launch once, to `push()` it repeatedly, or to launch it `.on` a
        stream of the device of its arrays.

        `args` and `device` are those of `kernel[grid, block](*args)`. Raises whatever such a call
        raises.
        """
        return prepared(self, (grid, block, shared_bytes), args, device=device)

    def uses(self, arguments: Sequence[Any], values: Sequence[Any]) -> tuple[Uses, Uses]:
        """The reads and writes of a call: positions of arguments, and the module's tokens.

        `values` are those of `arguments`, and the kernel is known to take them. Raises ValueError
        for a write to read-only memory; read-only arrays have a type of their own.
        """
        reads: Uses = []
        writes: Uses = []
        for i, (argument, value) in enumerate(zip(arguments, values, strict=True)):
            if self.packing.is_memory(i, value):
                inferred = READS_WRITES[self.parameters[i].access]
                does_read, does_write = NARROWED.get(type(argument), inferred)
                if does_write and getattr(value, "is_read_only", False):
                    raise ValueError(
                        f"the array for {self.parameters[i].name} is read-only, and the PTX may "
                        f"write to it: give x.copy(), or wrap it in In(...) if {self.name} only "
                        f"reads it"
                    )
                reads += [i] * does_read
                writes += [i] * does_write
        for symbol, access in self.symbols.items():
            does_read, does_write = READS_WRITES[access]
            reads += [self.module.variable(symbol)] * does_read
            writes += [self.module.variable(symbol)] * does_write
        return reads, writes

    def accesses(self, arguments: Sequence[Any], values: Sequence[Any]) -> Accesses:
        """The accesses that order a call with these arguments, and the values in them."""
        found = accesses_of(self, arguments, *self.uses(arguments, values), values)
        reach = reach_of(self, arguments, values)
        return found if reach is None else reach.widened(found, reach.looked_at(values))

    def _call_packer(self, arguments: Sequence[Any], values: Sequence[Any]) -> Packer:
        """For arguments of these types: packs them, and returns the reads and writes."""
        places = [f"a{i}" for i in range(len(values))]
        guards: list[str] = []
        names: dict[str, Any] = {}
        for i, argument in enumerate(arguments):
            if type(argument) in NARROWED:
                guards.append(f"type(a{i}) is narrowed{i}")
                names[f"narrowed{i}"] = type(argument)
                places[i] = f"a{i}.array"

        def region(position: int) -> str:
            if isinstance(values[position], Array):
                return f"{places[position]}.region"
            return f"region_of({places[position]}, 'reads')"

        def written_out(positions: list[int]) -> str:
            return f"({''.join(f'{region(each)}, ' for each in positions)})"

        reads, writes = self.uses(arguments, values)
        names["region_of"] = resolve_one
        names["tokens_read"], names["tokens_written"] = reasoned(self, arguments, reads, writes)
        regions = ", ".join(map(written_out, parts(reads, writes)))
        has_overwritten = parts(reads, writes)[2]
        names["keep"] = keep_what_lies_between
        regions = f"keep({regions})" if has_overwritten else f"({regions})"
        answer = f"({regions}, tokens_read, tokens_written)"
        reach = reach_of(self, arguments, values)
        if reach is not None:
            names["widened"] = reach.widened
            looked_at = "".join(f"{places[position]}, " for position in reach.positions)
            answer = f"widened({answer}, ({looked_at}))"
        return self.packing.packer(values, places=places, guards=guards, answer=answer, names=names)


@unpicklable("send the PTX and load it there with Module.from_ptx")
class BoundKernel:
    """A kernel with its launch shape; call it with the kernel's arguments."""

    __slots__ = ("_elsewhere", "_idle", "_shape", "block", "grid", "kernel", "shared_bytes")

    def __init__(self, kernel: Kernel, grid: Any, block: Any, shared_bytes: int) -> None:
        self.kernel = kernel
        self.grid = grid
        self.block = block
        self.shared_bytes = shared_bytes
        # None until the first call checks it.
        self._shape: Shape | None = None
        # Launches to be packed for a call; each comes back when it has been issued. deque.pop and
        # append are one C call each, so no two calls get the same launch.
        self._idle: deque[Launch] = deque()
        # The same kernel and shape on other devices where it was called.
        self._elsewhere: tuple[BoundKernel, ...] = ()

    def __call__(
        self,
        *args: Any,
        name: str | None = None,
        priority: int = 0,
        device: DeviceLike | None = None,
    ) -> Op:
        """Push a launch with these arguments, with their values as of now; returns the op at once.

        It runs on the device of its arrays (and buffers), and the kernel is loaded there at the
        first call, which blocks until that device is idle. Without arrays it runs where the module
        was made. `device` chooses the device: memory of other devices is then used by peer access,
        which is enabled. Addresses that come as integers do not choose a device.

        Raises TypeError and ValueError for a wrong number, type or range of arguments, and for a
        launch shape that no device could run. Raises ValueError for arrays of two devices without a
        `device`, and without peer access.
        """
        tape = _local.tape
        step = tape.step
        if step.bound is self and name is None and not priority and device is None:
            # The launch may be the next of a sequence: see `engine.replay`.
            frame = _getframe(1)
            if (
                frame.f_lasti == step.at
                and frame.f_code is step.code
                and maybe_engine() is tape.engine
                and (taken := step.takes(args))
            ):
                if len(tape.entries) == tape.length:
                    joined: JoinedLaunch = _new_op(JoinedLaunch)
                    joined._run = tape.run  # type: ignore[assignment]
                    joined._step = step
                    joined._taken = taken
                    if tape.slots.setdefault(step.index, joined) is joined:
                        following = step.following
                        if following is not None:
                            tape.step = following
                        else:
                            tape.complete(step)
                        return joined  # type: ignore[no-any-return]
                if _dead or LENT:
                    reap()
                begun: Op | None = tape.begin(step, frame, taken)
                if begun is not None:
                    return begun
        if _dead or LENT:
            reap()
        kernel = self.kernel
        accesses: Accesses | None
        launch: Any
        if device is None:
            try:
                launch = self._idle.pop()
            except IndexError:
                launch = self._another()
            # Checked and packed now: wrong arguments are the caller's mistake, and values count as
            # of now, though the launch may run later.
            buffer = launch.block.buffer
            calls = kernel.calls
            try:
                accesses = calls.latest(args, buffer)
            except OUT_OF_RANGE:
                accesses = None
        else:
            launch = accesses = None
        if accesses is None:
            launch, accesses = self._otherwise(args, launch, device)
            kernel = launch.kernel
        # Keeps the arguments alive until the launch is issued.
        launch.kept = args
        engine = current_engine()
        check = kernel.check
        if name is None:
            name = kernel.label
        if check is None and not priority and engine._is_direct:
            op: Op = _push(
                engine, launch.on, accesses, name, kernel.device, _getframe(1), kernel.name
            )
            if tape.is_attentive and device is None and name is kernel.label:
                tape.pushed(self, kernel, args, accesses, engine, _getframe(1))
            return op
        if check is not None:
            check(args)
        return push_otherwise(engine, launch.on, kernel, accesses, name, priority)

    def call_of(
        self,
        kernel: Any,
        args: Sequence[Any],
        accesses: Accesses,
        frame: FrameType,
        *,
        changes: bool,
    ) -> Call | str:
        """See `tape.Replayable`."""
        return captured(self, kernel, args, accesses, frame, changes=changes)

    def piece_of(self, steps: Sequence[Step], device: Device) -> Piece:
        """See `tape.Replayable`."""
        return piece_of(steps, device)

    def touching(self, *, reads: Any = (), writes: Any = ()) -> Touching:
        """The same kernel and shape, with the memory that its pointers from memory lead to.

        `reads` and `writes` are arrays (or one), variables, or whatever `Engine.push` takes. They
        replace accesses that cannot be inferred; the inferred accesses of the arguments stay.
        Memory that is only in `writes` is overwritten whole. Raises TypeError for objects without
        bytes, ValueError for read-only memory among `writes`.
        """
        return Touching(self, reads, writes)

    def _otherwise(
        self, args: tuple[Any, ...], unused: Launch | None, device: DeviceLike | None
    ) -> tuple[Launch, Accesses]:
        """A launch with arguments of other types than the last call's, or on another device."""
        if unused is not None:
            self._idle.append(unused)
            for other in self._elsewhere:
                packed = other._packed(args)
                if packed is not None:
                    return packed
        self.kernel.get()
        values = [seen(a.array if type(a) in NARROWED else a) for a in args]
        kernel = placed(self.kernel, args, values, device)
        bound = self
        if kernel is not self.kernel:
            shared = self.shared_bytes
            bound = kernel[(self.grid, self.block, shared) if shared else (self.grid, self.block)]
            if device is None:
                alive = [each for each in self._elsewhere if not each.kernel.module.is_closed]
                self._elsewhere = tuple(dict.fromkeys((*alive, bound)))
        launch = bound._taken()
        return launch, bound._pack(args, values, launch.block.buffer)

    def _packed(self, args: tuple[Any, ...]) -> tuple[Launch, Accesses] | None:
        """A launch with these arguments, if they have the types of the last call here."""
        if self.kernel.module.is_closed:
            return None
        launch = self._taken()
        try:
            accesses = self.kernel.calls.latest(args, launch.block.buffer)
        except OUT_OF_RANGE:
            accesses = None
        if accesses is None:
            self._idle.append(launch)
            return None
        return launch, accesses

    def _taken(self) -> Launch:
        try:
            return self._idle.pop()
        except IndexError:
            return self._another()

    def _pack(self, args: tuple[Any, ...], values: list[Any], buffer: Any) -> Accesses:
        """Pack arguments of other types than the last call's; returns the accesses of the
        launch."""
        kernel = self.kernel
        accesses: Accesses
        if not any(isinstance(value, ForeignArray) for value in values):
            accesses = kernel.calls.pack_otherwise(args, values, buffer)
            return accesses
        # Another library's array, and its stream, may change its memory with each call.
        kernel.packing.pack_exactly(values, buffer)
        accesses = kernel.accesses(args, values)
        take_over_foreign(values)
        return accesses

    def _another(self) -> Launch:
        kernel = self.kernel
        shape = self._shape
        if shape is None:
            shape = self._shape = kernel.shape(self.grid, self.block, self.shared_bytes)
            kernel.keep(self)
        return driver.Launch(kernel, shape, kernel.packing.block(), None, self._idle)

    def __repr__(self) -> str:
        return f"<BoundKernel {self.kernel.name}, grid {self.grid}, block {self.block}>"
