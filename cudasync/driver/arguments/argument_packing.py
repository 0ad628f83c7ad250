"""Floor 1. Packing of arguments for the driver: one block of bytes, and a pointer to each value.

The packing of a kernel's arguments depends on their types. For each combination of types a function
is generated and compiled, as dataclasses does for `__init__`. It checks the types, and packs all
values with one call of `struct`. If the types differ or a value is out of range, the arguments are
packed value by value with every check, so that an error names the argument.

Blocks are reused: cuLaunchKernel has read the arguments when it returns, so the block is free at
once. A thread that finds no free block makes one.
"""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from cuda.bindings import driver

from cudasync.driver.arguments.argument_form import Form, kind_of
from cudasync.driver.arguments.parameter import Encoder
from cudasync.driver.ownership.unpicklable import unpicklable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from cudasync.driver.arguments.parameter import Parameter
    from cudasync.driver.device import Device
    from cudasync.driver.streams.stream import StreamLike

    # From arguments and a block's buffer to the packer's answer; None if the types differ.
    Packer: TypeAlias = Callable[[Sequence[Any], Any], Any]

# The most combinations of types that a kernel remembers.
_MOST_PACKERS = 64

_ALIGNMENT = 16
_WORD = struct.Struct("<Q")
# The formats of a parameter that is one such word.
_WORD_FORMATS = frozenset("Qq")

# Errors of a packer for a value that is out of its parameter's range, or has no form.
OUT_OF_RANGE = (struct.error, ValueError, OverflowError, AttributeError)

# For callers that order the uses of the arguments by other means.
ANY_STREAM = object()


class Block:
    """The bytes of one launch's arguments, followed by the `void *[]` that points to them."""

    __slots__ = ("_pin", "address", "buffer")

    def __init__(self, size: int, offsets: Sequence[int], table: struct.Struct) -> None:
        start = -(-size // 8) * 8
        # The driver copies the values from here: each is at a multiple of its size.
        memory: Any = bytearray(start + table.size + _ALIGNMENT)
        # This keeps the memory alive and at its address.
        self._pin = ctypes.c_char.from_buffer(memory)
        base = ctypes.addressof(self._pin)
        shift = -base % _ALIGNMENT
        if shift:
            memory = memoryview(memory)[shift:]
            base += shift
        table.pack_into(memory, start, *map(base.__add__, offsets))
        self.buffer = memory
        # The address of the pointers for the driver; 0 for a kernel without parameters.
        self.address = base + start if offsets else 0


class Packing:
    """The packing of one kernel's arguments. Any number of threads may use it at once."""

    __slots__ = ("_encoders", "_free", "_layout", "_name", "_offsets", "_table", "count", "packers")

    def __init__(
        self, name: str, parameters: Sequence[Parameter], device: Device | None = None
    ) -> None:
        self._name = name
        self.count = len(parameters)
        self._encoders = [Encoder(i, each, name, device) for i, each in enumerate(parameters)]
        # The driver follows a pointer to each value, so only alignment matters, not PTX's offsets.
        offsets = []
        end = 0
        for parameter in parameters:
            align = _ALIGNMENT if parameter.is_array else parameter.size_bytes
            start = -(-end // align) * align
            offsets.append(start)
            end = start + parameter.size_bytes
        self._offsets = tuple(offsets)
        self._layout = self._struct([encoder.format for encoder in self._encoders])
        self._table = struct.Struct(f"{len(offsets)}P")
        # deque.pop and append are one C call each: no two threads get the same block.
        self._free: deque[Block] = deque()
        self.packers = PackerTable(self)

    def leading(self, formats: Sequence[str]) -> struct.Struct:
        """A struct that packs the first arguments, one per format, into a block's buffer."""
        return self._struct(formats)

    def _struct(self, formats: Sequence[str]) -> struct.Struct:
        layout = "<"
        end = 0
        for start, format_ in zip(self._offsets[: len(formats)], formats, strict=True):
            layout += f"{start - end}x{format_}"
            end = start + struct.calcsize("<" + format_)
        return struct.Struct(layout)

    def block(self) -> Block:
        """A new block, for arguments of this kernel."""
        return Block(self._layout.size, self._offsets, self._table)

    def take(
        self, arguments: Sequence[Any], stream: StreamLike | object | None = ANY_STREAM
    ) -> Block:
        """A block with the arguments in it; `give` it back once the driver has read them.

        Raises TypeError for a wrong number or type of arguments, ValueError for a value out of
        range, ClosedError for a closed buffer. With `stream`, also the errors of `managed`
        arguments for a use there.
        """
        try:
            block = self._free.pop()
        except IndexError:
            block = self.block()
        packers = self.packers
        try:
            packed = packers.latest(arguments, block.buffer)
        except OUT_OF_RANGE:
            packed = None
        if packed is None:
            packed = packers.pack_otherwise(arguments, arguments, block.buffer)
        if packed and stream is not ANY_STREAM:
            ask_order(packed, stream)
        return block

    def give(self, block: Block) -> None:
        """Take a block back."""
        self._free.append(block)

    def pack_exactly(self, arguments: Sequence[Any], buffer: Any) -> None:
        """Pack with every check, so that an error names the argument."""
        if len(arguments) != self.count:
            raise TypeError(
                f"kernel {self._name} takes {self.count} arguments, not {len(arguments)}: "
                f"({', '.join(str(each.parameter) for each in self._encoders)})"
            )
        values = [
            encoder.exactly(value) for encoder, value in zip(self._encoders, arguments, strict=True)
        ]
        self._layout.pack_into(buffer, 0, *values)

    def packed(self, block: Block) -> bytes:
        """The arguments in `block`. Blocks with the same bytes have the same arguments."""
        return bytes(block.buffer[: self._layout.size])

    def words(self, block: Block) -> Iterator[tuple[int, int]]:
        """The words in `block` that may be addresses, each with its offset: parameters of eight
        bytes, and the words of structs."""
        for at in self._word_offsets():
            yield at, _WORD.unpack_from(block.buffer, at)[0]

    def _word_offsets(self) -> Iterator[int]:
        for encoder, start in zip(self._encoders, self._offsets, strict=True):
            yield from range(start, start + encoder.parameter.size_bytes - 7, 8)

    def value_words(self, arguments: Sequence[Any] | None) -> frozenset[int]:
        """The offsets of those words that `arguments` give as values. Each other word is the
        address of the first element of an array, or of a buffer.

        A word whose argument is unknown, or has no element, counts as a value.
        """
        every = frozenset(self._word_offsets())
        if arguments is None or len(arguments) != self.count:
            return every
        return every - {
            start
            for encoder, start, argument in zip(
                self._encoders, self._offsets, arguments, strict=True
            )
            if encoder.format in _WORD_FORMATS and _has_elements(argument)
        }

    def aimed(
        self,
        block: Block,
        address: Callable[[int, int], int] | None,
        values: Mapping[int, Any],
    ) -> Block:
        """A copy of `block` in which `address`, called with its offset and its value, maps each
        word that may be an address, and `values` replaces the arguments at these positions."""
        made = self.block()
        size = self._layout.size
        made.buffer[:size] = block.buffer[:size]
        if address is not None:
            for at, word in self.words(block):
                _WORD.pack_into(made.buffer, at, address(at, word))
        for position, value in values.items():
            bits = self.bits(position, value)
            start = self._offsets[position]
            made.buffer[start : start + len(bits)] = bits
        return made

    def written_anew(
        self, block: Block, arguments: Sequence[Any], changing: Collection[int]
    ) -> tuple[str, dict[str, Any]]:
        """An expression for the bytes of `block` with other values of `changing` arguments, which
        it calls a0, a1 and so on, and the other names in it.

        Their types are those of `arguments`. It raises one of OUT_OF_RANGE for a value that does
        not fit.
        """
        names: dict[str, Any] = {}
        formats, values = [], []
        for i, (encoder, start) in enumerate(zip(self._encoders, self._offsets, strict=True)):
            if i in changing:
                format_, value_of, encode = encoder.written(arguments[i])
                names[f"encode{i}"] = encode
                value = value_of.format(f"a{i}", f"encode{i}")
            else:
                size = encoder.parameter.size_bytes
                format_, value = f"{size}s", f"bits{i}"
                names[value] = bytes(block.buffer[start : start + size])
            formats.append(format_)
            values.append(value)
        names["pack"] = self._struct(formats).pack
        return f"pack({', '.join(values)})", names

    def is_memory(self, position: int, value: Any) -> bool:
        """True if `value`, which the parameter takes, stands for memory rather than a number."""
        return self._encoders[position].is_memory(value)

    def bits(self, position: int, value: Any) -> bytes:
        """The bytes that the kernel gets for `value`, which the parameter takes."""
        encoder = self._encoders[position]
        return struct.pack("<" + encoder.format, encoder.exactly(value))

    def packer(
        self,
        arguments: Sequence[Any],
        *,
        places: Sequence[str] | None = None,
        guards: Sequence[str] = (),
        answer: str = "",
        names: Mapping[str, Any] | None = None,
    ) -> Packer:
        """A function that packs arguments of the same types as these, which the kernel takes.

        It returns `answer`, an expression in the arguments a0, a1 and so on and in `names`; by
        default the `managed` arguments. It returns None if the types differ or one of `guards` does
        not hold. `places` locates each value, if not in the argument itself: "a0.array". Without a
        buffer the function packs nothing and only answers.
        """
        every = [f"a{i}" for i in range(self.count)]
        namespace = dict(names or {})
        tests = [*guards]
        formats = []
        values = []
        located = zip(places or every, self._encoders, arguments, strict=True)
        for i, (place, encoder, value) in enumerate(located):
            kind = namespace[f"type{i}"] = kind_of(value)
            # A form implies the argument's type, so the type needs no check.
            tests.append(
                f"{place}.form is type{i}" if type(kind) is Form else f"type({place}) is type{i}"
            )
            format_, value_of, encode = encoder.written(value)
            formats.append(format_)
            values.append(value_of.format(place, f"encode{i}"))
            namespace[f"encode{i}"] = encode
        namespace["pack_into"] = self._struct(formats).pack_into
        ordered = (each for each, value in zip(every, arguments, strict=True) if is_managed(value))
        written_managed = f"({''.join(f'{each}, ' for each in ordered)})"
        source = (
            "def pack(arguments, buffer):\n"
            f"    [{', '.join(every)}] = arguments\n"
            f"    if {' and '.join(tests) or 'True'}:\n"
            "        if buffer is not None:\n"
            f"            pack_into(buffer, 0, {', '.join(values)})\n"
            f"        return {answer or written_managed}\n"
            "    return None\n"
        )
        exec(compile(source, f"<arguments of {self._name}>", "exec"), namespace)
        packer: Packer = namespace["pack"]
        return packer


class PackerTable:
    """The packers of one kernel, by types of arguments. Callers first try `latest` themselves.

    `make` gets the arguments, and the values in them if these differ.
    """

    __slots__ = ("_known", "_make", "_packing", "latest")

    def __init__(
        self,
        packing: Packing,
        make: Callable[[Sequence[Any], Sequence[Any]], Packer] | None = None,
    ) -> None:
        self._packing = packing
        self._make = make
        # Any thread writes: packers that two threads make at once are equivalent.
        self._known: dict[Any, Packer] = {}
        self.latest: Packer = _takes_nothing

    def __len__(self) -> int:
        return len(self._known)

    def pack_otherwise(self, arguments: Sequence[Any], values: Sequence[Any], buffer: Any) -> Any:
        """Pack arguments that `latest` did not take, and return the answer of their packer.

        Raises the errors of `Packing.take`.
        """
        types = (*map(kind_of, arguments), *map(kind_of, values))
        packer = self._known.get(types)
        if packer is not None and packer is not self.latest:
            self.latest = packer
            with suppress(*OUT_OF_RANGE):
                return packer(arguments, buffer)
        self._packing.pack_exactly(values, buffer)
        if packer is None:
            make = self._make
            packer = self._packing.packer(values) if make is None else make(arguments, values)
            if len(self._known) >= _MOST_PACKERS:
                self._known.clear()
            self._known[types] = self.latest = packer
        return packer(arguments, None)


def _takes_nothing(arguments: Sequence[Any], buffer: Any) -> None:
    return None


@unpicklable("send the values of the arguments, and pack them there")
class PreparedArguments:
    """Arguments checked and packed once, for many launches of one kernel.

    It keeps the arguments alive; its addresses are those at the time of packing.
    """

    __slots__ = ("block", "kept", "managed", "packing")

    def __init__(self, packing: Packing, arguments: Sequence[Any]) -> None:
        self.packing = packing
        self.block = packing.take(arguments)
        self.kept = tuple(arguments)
        self.managed = managed(arguments)


def _has_elements(argument: Any) -> bool:
    """True for memory of a byte or more, in `In`, `Out` or `InOut` or not."""
    memory = getattr(argument, "array", argument)
    if isinstance(memory, int | np.generic | ctypes.c_void_p | driver.CUdeviceptr):
        return False
    return bool(getattr(memory, "nbytes", 1))


def is_managed(argument: Any) -> bool:
    """True for memory whose uses an engine orders, which may refuse other uses."""
    return hasattr(type(argument), "__cudasync_order__")


def managed(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The managed arguments."""
    return tuple(filter(is_managed, arguments))


def ask_order(managed: Sequence[Any], stream: Any) -> None:
    """Raise the error of an argument that would be used on `stream` out of its order."""
    for each in managed:
        each.__cudasync_order__(stream)
