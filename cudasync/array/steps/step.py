"""Floor 4, steps. One launch, with everything but the addresses of its arrays worked out.

The kernel's parameters are pointers to its inputs, the pointer to its result, then numbers that are
the same in each launch. A step overwrites its whole result, unless it updates it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from cudasync.array.elementwise.accesses import NO_TOKENS
from cudasync.array.elementwise.packers import packer
from cudasync.array.memory.pool import Scratch, kept_for, memory_of
from cudasync.array.replay import piece_of, taker
from cudasync.array.steps.recorded import note
from cudasync.driver import Launch
from cudasync.driver.extensions.declared_accesses import is_checked
from cudasync.engine.current import engine as current_engine
from cudasync.engine.device import device_push
from cudasync.engine.op import OpKind
from cudasync.engine.replay.sequence import Call
from cudasync.engine.replay.tape import LOCAL
from cudasync.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from cudasync.driver import Device, Kernel
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.replay.sequence import Piece
    from cudasync.engine.replay.sequence import Step as ReplayedStep

_local = LOCAL
_push = device_push.push


class Step:
    """A kernel, its grid and the numbers behind its arrays.

    `first` has the offset in bytes to add to each array's address; `numbers` are pairs of a value
    and the letter that packs it. A step that `updates` leaves a part of the result as it was.
    """

    __slots__ = (
        "_first",
        "_idle",
        "_is_checked",
        "_kernel",
        "_numbers",
        "_pack",
        "_pack_into",
        "_shape",
        "device",
        "name",
        "updates",
    )

    def __init__(
        self,
        name: str,
        device: Device,
        kernel: Kernel,
        *,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        first: Sequence[int],
        numbers: Sequence[tuple[Any, str]],
        updates: bool = False,
    ) -> None:
        self.updates = updates
        self.name = name
        self.device = device
        self._kernel = kernel
        self._shape = kernel.shape(grid, block, 0)
        self._first = tuple(first)
        self._numbers = tuple(numbers)
        self._pack = packer((True,) * (len(first) - 1), any(first))
        self._pack_into = kernel.packing.leading("Q" * len(first)).pack_into
        self._idle: deque[Launch] = deque()
        self._is_checked = is_checked()

    def __call__(
        self, operands: tuple[Any, ...], result: Any, frame: FrameType, *, is_new: bool = False
    ) -> Any:
        """Push it: reads the operands, overwrites the result; returns the op at once.

        The result `is_new` if only the caller has an array on its memory.
        """
        tape = _local.tape
        if tape.step.bound is self:
            joined = tape.join((*operands, result), frame)
            if joined is not None:
                return joined
        op: Any
        launch, read = self._packed(operands, result)
        # Alive until the launch is issued.
        launch.kept = (operands, result)
        written: tuple[Any, ...] = (result.region,)
        updated: tuple[Any, ...] = ()
        if self.updates:
            updated, written = written, ()
        accesses = ((read, updated, written), NO_TOKENS, ())
        engine = current_engine()
        kernel = self._kernel.name
        if engine._is_direct and not self._is_checked:
            args = (*operands, result)
            if tape.is_interested:
                launch.kept = kept_for(args)
            op = _push(engine, launch.on, accesses, self.name, self.device, frame, kernel)
            if tape.is_attentive:
                memory = memory_of(result) if is_new and not self.updates else None
                tape.pushed(self, self._kernel, args, accesses, engine, frame, memory)
            return op
        # In a recording this is a node.
        op = engine._push(
            launch.on,
            OpKind.KERNEL,
            reads=(*read, *updated),
            writes=(*updated, *written),
            name=self.name,
            device=self.device,
            kernel=kernel,
        )
        op._said = accesses
        if op.__class__ is Node:
            note(op, self, operands, result, is_new=is_new)
        return op

    def call_of(
        self,
        kernel: Any,
        args: Sequence[Any],
        accesses: Accesses,
        frame: FrameType,
        *,
        changes: bool,
    ) -> Call | str:
        """See `tape.Replayable`. Its numbers never change."""
        *operands, result = args
        kind = type(result) if result.__class__ is not Scratch else type(args[0])
        takes = taker(args, kind, is_laid_out=True)
        if takes is None:
            return "an operand is no array of ours"
        launch, _ = self._packed(tuple(operands), result)
        launch = Launch(kernel, self._shape, launch.block, None)
        place = frame.f_code, frame.f_lasti
        return Call(self, *place, takes, launch, accesses, self.name, None, changes=False)

    def piece_of(self, steps: Sequence[ReplayedStep], device: Device) -> Piece:
        """See `tape.Replayable`."""
        return piece_of(steps, device)

    def on_device(self, device: Device) -> Step:
        """The same step by a kernel of another device. Raises whatever loading the kernel
        raises."""
        x, y, z, *block, _ = self._shape
        return Step(
            self.name,
            device,
            self._kernel.on(device),
            grid=(x, y, z),
            block=tuple(block),
            first=self._first,
            numbers=self._numbers,
            updates=self.updates,
        )

    def packed(self, operands: tuple[Any, ...], result: Any) -> Launch:
        """A launch with these operands and this result, given by their `ptr` and `region`."""
        return self._packed(operands, result)[0].kept_for_good()

    def _packed(self, operands: tuple[Any, ...], result: Any) -> tuple[Launch, Any]:
        try:
            launch = self._idle.pop()
        except IndexError:
            launch = self._another()
        read = self._pack(self._pack_into, launch.block.buffer, operands, result, self._first)
        return launch, read

    def _another(self) -> Launch:
        block = self._kernel.packing.block()
        letters = "".join(letter for _, letter in self._numbers)
        pointers = len(self._first)
        packing = self._kernel.packing.leading("Q" * pointers + letters)
        values = [value for value, _ in self._numbers]
        packing.pack_into(block.buffer, 0, *[0] * pointers, *values)
        return Launch(self._kernel, self._shape, block, None, self._idle)
