"""Floor 1. Arguments as the driver takes them: one block of bytes, and a pointer to each value.

The layout is made once per kernel. Blocks are reused: cuLaunchKernel has read the arguments when
it returns, so a block goes back at once. A thread that finds none makes one.
"""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from cudasync.driver.parameter import Encoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.driver.parameter import Parameter


class Block:
    """The bytes of one launch's arguments, and the `void *[]` that points into them."""

    __slots__ = ("address", "buffer", "kept", "pointers")

    def __init__(self, size: int, offsets: Sequence[int]) -> None:
        self.buffer: Any = (ctypes.c_ubyte * (size + 16))()
        start = -(-ctypes.addressof(self.buffer) // 16) * 16 - ctypes.addressof(self.buffer)
        self.buffer = memoryview(self.buffer).cast("B")[start : start + size]
        base = ctypes.addressof(ctypes.c_ubyte.from_buffer(self.buffer)) if size else 0
        self.pointers: Any = (ctypes.c_void_p * max(1, len(offsets)))(
            *(base + offset for offset in offsets)
        )
        # Where the driver finds the pointers; 0 for a kernel without parameters.
        self.address = ctypes.addressof(self.pointers) if offsets else 0
        # What prepared arguments refer to.
        self.kept: tuple[Any, ...] = ()


class Packing:
    """How the arguments of one kernel are packed. Any number of threads may use it at once."""

    __slots__ = ("_encoders", "_free", "_known", "_layout", "_name", "_offsets", "count")

    def __init__(self, name: str, parameters: Sequence[Parameter]) -> None:
        self._name = name
        self.count = len(parameters)
        self._encoders = [Encoder(i, parameter) for i, parameter in enumerate(parameters)]
        self._known = tuple(encoder.by_type for encoder in self._encoders)
        # The driver follows a pointer to each value, so only alignment matters, not PTX's offsets.
        layout = "<"
        offsets = []
        end = 0
        for encoder, parameter in zip(self._encoders, parameters, strict=True):
            align = 16 if parameter.is_array else parameter.size_bytes
            start = -(-end // align) * align
            layout += f"{start - end}x{encoder.format}"
            offsets.append(start)
            end = start + parameter.size_bytes
        self._layout = struct.Struct(layout)
        self._offsets = tuple(offsets)
        # deque.pop and append are one C call each: no two threads get the same block.
        self._free: deque[Block] = deque()

    def take(self, arguments: Sequence[Any]) -> Block:
        """A block with the arguments in it, to be given back once the driver has read them.

        Raises TypeError for a wrong number or type of arguments, ValueError for a value out of
        range, ClosedError for a closed buffer.
        """
        if len(arguments) != self.count:
            raise TypeError(
                f"kernel {self._name} takes {self.count} arguments, {len(arguments)} given"
            )
        try:
            block = self._free.pop()
        except IndexError:
            block = Block(self._layout.size, self._offsets)
        # The common case, kept free of calls: types seen before, values in range. The counts are
        # equal, so zip need not be told to check.
        try:
            self._layout.pack_into(
                block.buffer,
                0,
                *[known[type(value)](value) for known, value in zip(self._known, arguments)],  # noqa: B905
            )
        except (KeyError, struct.error, ValueError, OverflowError):
            try:
                self._pack_exactly(block, arguments)
            except BaseException:
                self._free.append(block)
                raise
        return block

    def _pack_exactly(self, block: Block, arguments: Sequence[Any]) -> None:
        """Pack with every check, so that an error names the argument."""
        values = [
            encoder.exactly(value) for encoder, value in zip(self._encoders, arguments, strict=True)
        ]
        self._layout.pack_into(block.buffer, 0, *values)

    def give(self, block: Block) -> None:
        """Take a block back."""
        self._free.append(block)


class PreparedArguments:
    """Arguments checked and packed once, for many launches of one kernel.

    It keeps the arguments alive; the addresses in it are those they had when it was made.
    """

    __slots__ = ("block", "packing")

    def __init__(self, packing: Packing, arguments: Sequence[Any]) -> None:
        self.packing = packing
        self.block = packing.take(arguments)
        self.block.kept = tuple(arguments)
