"""Floor 3. Arguments that are copied in and out: arrays whose slot a function refers to.

Such a function uses the slot, whatever the argument is. So the argument is copied to the slot
before each launch that needs it, and back after each launch that writes it.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from cudasync.driver import Device
from cudasync.engine.op import OpKind
from cudasync.graph.parts.completion_variables import besides
from cudasync.graph.transfers import Transfer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudasync.engine import Op
    from cudasync.engine.hazards.accesses import Accesses
    from cudasync.engine.hazards.interval_map import Region
    from cudasync.graph.arguments import Argument
    from cudasync.graph.parts.completion_variables import Between


class Staged:
    """One argument that is copied to its slot, and back."""

    def __init__(self, argument: Argument, value: Any, accesses: Accesses) -> None:
        self.name = argument.name
        self._value: Region = value.region
        self._slot = argument.region
        self._device = value.device if isinstance(value.device, Device) else None
        (only_read, updated, written), _, _ = accesses
        # An overwrite may leave bytes as they are, so the copy in is needed: everything is copied
        # back.
        self.is_written = any(_meet(each, self._slot) for each in updated + written)
        self.is_read = self.is_written or any(_meet(each, self._slot) for each in only_read)

    @property
    def regions(self) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
        """The additional reads and writes of launches."""
        return (self._value,) * self.is_read, (self._value,) * self.is_written

    def copy_in(
        self, engine: Any, values: Mapping[str, Any], between: Between | None = None
    ) -> list[Op]:
        """Push the copy to the slot; `values` are those of this launch, at the known addresses."""
        if not self.is_read:
            return []
        name = f"{self.name}, copied in"
        return [self._push(engine, self._slot, self._value, values[self.name], name, between)]

    def copy_out(
        self, engine: Any, values: Mapping[str, Any], between: Between | None = None
    ) -> list[Op]:
        """Push the copy back."""
        if not self.is_written:
            return []
        name = f"{self.name}, copied out"
        return [self._push(engine, self._value, self._slot, values[self.name], name, between)]

    def _push(
        self,
        engine: Any,
        target: Region,
        source: Region,
        kept: Any,
        name: str,
        between: Between | None,
    ) -> Op:
        also_read, also_written = besides(between)
        reads, writes = [source, *also_read], [target, *also_written]
        device = self._device
        size = target.end - target.start
        if device is None:

            def copy_on_host(kept: Any = kept) -> None:
                # The default argument keeps the array: nothing else frees CPU memory in order.
                ctypes.memmove(target.start, source.start, size)

            op: Op = engine._push(copy_on_host, OpKind.HOST, reads=reads, writes=writes, name=name)
            return op
        transfer = Transfer((target, device), (source, device))
        op = engine._push(
            transfer.on,
            OpKind.DTOD,
            reads=reads,
            writes=writes,
            name=name,
            device=device,
        )
        return op


def _meet(one: Region, other: Region) -> bool:
    return one.start < other.end and other.start < one.end
