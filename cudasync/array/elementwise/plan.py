"""Floor 4, elementwise. A plan: an expression for operands of given layouts, on a device.

Everything that does not depend on addresses and values is computed when the plan is made. Running
it takes the result's bytes, packs addresses and numbers, and pushes one launch.
"""

from __future__ import annotations

import struct
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

from cudasync.array.allocation import DEAD, reap
from cudasync.array.dtypes.promotion import in_range
from cudasync.array.elementwise.accesses import NO_TOKENS
from cudasync.array.elementwise.compilation import kernel_for
from cudasync.array.elementwise.layouts import of_now, raise_if_over
from cudasync.array.elementwise.packers import packer
from cudasync.array.elementwise.recorded import note
from cudasync.array.elementwise.results import new_result, result_over
from cudasync.array.expressions.c_types import C_TYPES
from cudasync.array.expressions.kernel import class_of, constants, launch_shape
from cudasync.array.expressions.layout import Layout as Axes
from cudasync.array.expressions.layout import broadcast_strides, collapsed
from cudasync.array.expressions.tree import Scalar, leaves, name_of
from cudasync.array.memory.pool import Source, kept_for, memory_of
from cudasync.array.replay import numbers_among, piece_of, taker
from cudasync.driver import Launch
from cudasync.driver.extensions.declared_accesses import is_checked
from cudasync.driver.interchange.dlpack_export import LENT
from cudasync.engine.current import engine as current_engine
from cudasync.engine.current import maybe_engine
from cudasync.engine.device import device_push
from cudasync.engine.hazards.interval_map import Gapped
from cudasync.engine.op import OpKind
from cudasync.engine.replay.sequence import Call
from cudasync.engine.replay.tape import LOCAL
from cudasync.graph.node import Node

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from cudasync.array.elementwise.layouts import Layout
    from cudasync.array.expressions.tree import Expression
    from cudasync.driver import Device
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.replay.sequence import Piece
    from cudasync.engine.replay.sequence import Step as ReplayedStep

_local = LOCAL
_push = device_push.push
_dead = DEAD.items


class DevicePlan:
    """`operands` has the layout of each array, and None for a number."""

    __slots__ = (
        "_device",
        "_first",
        "_formats",
        "_idle",
        "_is_checked",
        "_kernel",
        "_kernel_name",
        "_numbers",
        "_pack",
        "_pack_into",
        "_shape",
        "_source",
        "_successor",
        "_token",
        "_values",
        "name",
        "operands",
        "result",
        "tree",
    )

    def __init__(self, tree: Expression, operands: Sequence[Layout | None], result: Layout) -> None:
        self.tree = tree
        self.operands = tuple(operands)
        self.result = result
        self.name = name_of(tree)
        self._device = result.device
        self._is_checked = is_checked()
        self._idle: deque[Launch] = deque()
        self._successor: DevicePlan | None = None
        if result.size:
            self._prepare()

    def _prepare(self) -> None:
        """Get the kernel, in the current life of the context."""
        # Read the token first: if a reset comes in between, the plan is never used.
        self._token = self._device.context.token
        raise_if_over(*self.operands, self.result)
        result, device = self.result, self._device
        arrays = [each for each in self.operands if each is not None]
        strides = [
            *(broadcast_strides(e.shape, e.element_strides, result.shape) for e in arrays),
            result.element_strides,
        ]
        axes = collapsed(result.shape, strides)
        if not axes.lengths:
            axes = Axes((1,), ((1,),) * len(strides), axes.first)
        kind = class_of(axes)
        self._kernel: Any = kernel_for(self.tree, kind, device)
        kernel = self._kernel
        self._kernel_name = kernel.name
        sizes = [each.dtype.itemsize for each in (*arrays, result)]
        self._first = tuple(at * size for at, size in zip(axes.first, sizes, strict=True))
        are_arrays = tuple(each is not None for each in self.operands)
        self._pack = packer(are_arrays, any(self._first))
        self._numbers = {e.position: e for e in leaves(self.tree) if isinstance(e, Scalar)}
        self._formats = [
            "Q" if is_array else C_TYPES[self._numbers[at].dtype].letter
            for at, is_array in enumerate((*are_arrays, True))
        ]
        self._pack_into = kernel.packing.leading(self._formats).pack_into
        self._values = constants(axes, kind)
        grid, block = launch_shape(axes, kind)
        self._shape = kernel.shape(grid, block, 0)
        self._source = Source(device, result.nbytes)

    def _renewed(self, *arrays: Any) -> DevicePlan:
        """The same plan, after a reset of the device. Other threads may still use this one.

        Raises ClosedError if one of these arrays was lost in the reset.
        """
        raise_if_over(*arrays)
        found = self._successor
        if found is None or found._token is not self._device.context.token:
            operands = [each and of_now(each) for each in self.operands]
            found = self._successor = DevicePlan(self.tree, operands, of_now(self.result))
        return found

    def __call__(self, operands: tuple[Any, ...], frame: FrameType) -> Any:
        """Push the operation; returns a new array with its result at once. `frame` is the place."""
        if _dead or LENT:
            reap()
        result = self.result
        if not result.size:
            return new_result(result)
        if self._token is not self._device.context.token:
            return self._renewed(*operands)(operands, frame)
        tape = _local.tape
        bound = tape.step.bound
        # `rounds`, inlined.
        rounds = tape if tape.is_attentive or bound is not None else None
        block = self._source.take(operands, rounds)
        made = result_over(block, result, block.region)
        if bound is self and tape.join((*operands, made), frame) is not None:
            return made
        launch, regions = self._packed(operands, made)
        op = self._pushed(launch, (regions, (), (made.region,)), frame, is_new=True)
        if op.__class__ is Node:
            note(op, self, operands, made, is_new=True)
        return made

    def into(self, operands: tuple[Any, ...], target: Any, frame: FrameType) -> Any:
        """Push the operation with `target`, which has the result's layout, as its result.

        An overlapping operand must lie on it element on element: see `overlap.is_apart`. Returns
        the op; None if there is nothing to do.
        """
        if _dead or LENT:
            reap()
        if not self.result.size:
            return None
        if self._token is not self._device.context.token:
            return self._renewed(*operands, target).into(operands, target, frame)
        tape = _local.tape
        if tape.step.bound is self:
            joined = tape.join((*operands, target), frame)
            if joined is not None:
                return joined
        launch, regions = self._packed(operands, target)
        region = target.region
        apart = tuple([each for each in regions if each != region])
        if len(apart) < len(regions) or region.__class__ is Gapped:
            op = self._pushed(launch, (apart, (region,), ()), frame, is_new=False)
        else:
            op = self._pushed(launch, (apart, (), (region,)), frame, is_new=False)
        if op.__class__ is Node and region.__class__ is not Gapped:
            note(op, self, operands, target, is_new=False)
        return op

    def packed(self, operands: tuple[Any, ...], result: Any) -> Launch:
        """A launch with these operands and this result, given by their `ptr` and `region`."""
        return self._packed(operands, result)[0].kept_for_good()

    def _packed(self, operands: tuple[Any, ...], result: Any) -> tuple[Launch, Any]:
        try:
            launch = self._idle.pop()
        except IndexError:
            launch = self._another()
        try:
            regions = self._pack(
                self._pack_into, launch.block.buffer, operands, result, self._first
            )
        except (struct.error, OverflowError):
            operands = self._in_range(operands)
            regions = self._pack(
                self._pack_into, launch.block.buffer, operands, result, self._first
            )
        # Alive until the launch is issued.
        launch.kept = (operands, result)
        return launch, regions

    def _another(self) -> Launch:
        block = self._kernel.packing.block()
        # The parameters behind the operands and the result are the same for each launch.
        count = "Q" if self._kernel.parameters[len(self._formats)].size_bytes == 8 else "I"
        formats = [*self._formats, *(count if v >= 0 else count.lower() for v in self._values)]
        nothing = [0] * len(self._formats)
        self._kernel.packing.leading(formats).pack_into(block.buffer, 0, *nothing, *self._values)
        return Launch(self._kernel, self._shape, block, None, self._idle)

    def _in_range(self, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """The operands, with numbers beyond the largest float as infinities; OverflowError for
        integers that their dtype does not hold."""
        values = list(operands)
        for at, leaf in self._numbers.items():
            in_range(leaf.dtype, values[at])
            if leaf.dtype.kind == "f":
                value = float(values[at])
                try:
                    struct.pack(f"<{C_TYPES[leaf.dtype].letter}", value)
                except OverflowError:
                    value = float("inf") if value > 0 else float("-inf")
                values[at] = value
        return tuple(values)

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
        launch, _ = self._packed(tuple(args[:-1]), args[-1])
        # Ops that are under way may refer to it.
        launch.kept = None
        answer, names = "", dict[str, Any]()
        changing: frozenset[int] = frozenset()
        if changes:
            changing = numbers_among(args)
            packing = kernel.packing.leading(self._formats)
            addresses = packing.unpack_from(launch.block.buffer)
            names = {f"address{i}": each for i, each in enumerate(addresses)}
            names["pack"] = packing.pack
            values = [f"a{i}" if i in changing else f"address{i}" for i in range(len(addresses))]
            answer = f"pack({', '.join(values)})"
        takes = taker(args, self.result.kind, changing, answer, names, is_laid_out=True)
        if takes is None:
            return "an operand is neither an array of ours nor a number"
        launch = Launch(kernel, self._shape, launch.block, None)
        return Call(
            self, frame.f_code, frame.f_lasti, takes, launch, accesses, self.name, None,
            bool(changing),
        )  # fmt: skip

    def piece_of(self, steps: Sequence[ReplayedStep], device: Device) -> Piece:
        """See `tape.Replayable`."""
        return piece_of(steps, device)

    def _pushed(self, launch: Launch, regions: Any, frame: FrameType, *, is_new: bool) -> Any:
        op: Any
        accesses = (regions, NO_TOKENS, ())
        engine = maybe_engine() or current_engine()
        if engine._is_direct and not self._is_checked:
            tape = _local.tape
            if not tape.is_attentive and tape.step.bound is None:
                name = self.name
                return _push(
                    engine, launch.on, accesses, name, self._device, frame, self._kernel_name
                )
            operands, result = launch.kept  # type: ignore[misc]
            args = (*operands, result)
            launch.kept = kept_for(args)
            op = _push(
                engine, launch.on, accesses, self.name, self._device, frame, self._kernel_name
            )
            if tape.is_attentive:
                memory = memory_of(result) if is_new else None
                tape.pushed(self, self._kernel, args, accesses, engine, frame, memory)
            return op
        only_read, updated, written = regions
        op = engine._push(
            launch.on,
            OpKind.KERNEL,
            reads=(*only_read, *updated),
            writes=(*updated, *written),
            name=self.name,
            device=self._device,
            kernel=self._kernel_name,
        )
        op._said = accesses
        return op


def user_frame() -> FrameType:
    """The frame of the user's call, from a function of this package that makes several
    operations."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("cudasync."):
        frame = frame.f_back
    return frame
