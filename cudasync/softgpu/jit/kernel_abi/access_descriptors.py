"""Cellar, jit. The constants of an access as a row of words, for the functions of its slow path.

The slow path of an access is a call. Arguments beyond those in registers cost LLVM more than the
call itself. So all values known at emission go into a constant of the module; its address is one
argument. A row's name encodes its contents, so that equal rows are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto, unique
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.kernel_abi.job_record import Field
from cudasync.softgpu.jit.vector_ir.uniformity import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.jit.addressing.address_bounds import Reach
    from cudasync.softgpu.jit.vector_ir.builder import Builder
    from cudasync.softgpu.jit.vector_ir.uniformity import Shape


@dataclass(frozen=True, slots=True)
class Window:
    """A range that does not change while a block runs.

    `start` is a word of the job, or None for 0; `length` is a word, too, or a number of bytes.
    """

    start: Field | None
    length: Field | int

    @property
    def start_text(self) -> str:
        return _TEXTS[self.start]

    @property
    def length_text(self) -> str:
        return str(self.length) if type(self.length) is int else _TEXTS[self.length]


# The names of these values inside a function.
_TEXTS: dict[Field | int | None, str] = {
    None: "0",
    Field.SHARED: "%shared.address",
    Field.SHARED_BYTES: "%shared.bytes",
    Field.PARAMETERS: "%parameters.address",
}
EVERYTHING = Window(None, -1)
SHARED_WINDOW = Window(Field.SHARED, Field.SHARED_BYTES)


@unique
class Word(IntEnum):
    """The words of a row, in order; the accesses follow, three words each."""

    # The instruction of the cached range, see `memcheck`.
    POSITION = 0
    WHERE = auto()
    # Words of the job that hold start and length of a window; the constant part of the length.
    START = auto()
    LENGTH = auto()
    LENGTH_MORE = auto()
    # The address of lane i is base + scale * extend(index + i * stride).
    SCALE = auto()
    STRIDE = auto()
    IS_SIGNED = auto()
    # The number of bytes that one check covers when a range is cached, and the binary logarithm of
    # their alignment; 0 bytes if no check, or not every check, covers a fixed number.
    REACH = auto()
    SHIFT = auto()
    # The accesses: displacement, size and number of the instruction.
    COUNT = auto()


@unique
class Cache(IntEnum):
    """The words that are cached for each instruction, see `memcheck`: the last range of its lanes;
    then the lowest valid start within that range, and the number of valid starts."""

    START = 0
    LENGTH = auto()
    BASE = auto()
    ROOM = auto()


def row(
    builder: Builder,
    position: int,
    where: int,
    window: Window | None,
    shape: Shape,
    members: Sequence[tuple[int, int, int]],
    reach: Reach | None,
) -> str:
    """The name of the row for an access with an address of this shape.

    `reach` is the extent that the instruction at `position` checks at once.
    """
    start, length, more = Field.ZERO, Field.ZERO, 0
    if window is not None:
        start = window.start if window.start is not None else Field.ZERO
        if type(window.length) is int:
            more = window.length
        else:
            length = Field(window.length)
    scale, stride = line_of(shape)
    size, shift = (reach.size, reach.shift) if reach is not None else (0, 0)
    words = [
        *(position, where, start, length, more, scale, stride, shape.is_signed, size, shift),
        len(members),
        *(number for member in members for number in member),
    ]
    name = "@access." + ".".join(str(int(each)) for each in words)
    rest = ", ".join(f"i64 {int(each)}" for each in words)
    builder.constants[name] = f"private constant [{len(words)} x i64] [{rest}]"
    return name


def line_of(shape: Shape) -> tuple[int, int]:
    """Scale and stride of the lanes of an address; (0, 0) if its index varies freely."""
    match shape.kind:
        case Kind.WIDE:
            return shape.scale, shape.stride
        case Kind.AFFINE:
            return shape.stride, 1
        case _:
            return 0, 0


def read_word(word: Word, name: str) -> str:
    """Text that loads a word of `%row` as `%name`."""
    return f"""  %{name}.at = getelementptr i64, ptr %row, i64 {word.value}
  %{name} = load i64, ptr %{name}.at"""


def read_window() -> str:
    """Text that finds `%cache`, `%window.start` and `%window.length` of a row.

    Without a window, the range is the instruction's last range.
    """
    return f"""{read_word(Word.POSITION, "own")}
{read_word(Word.WHERE, "where")}
{read_word(Word.START, "start.field")}
{read_word(Word.LENGTH, "length.field")}
{read_word(Word.LENGTH_MORE, "length.more")}
  %caches.at = getelementptr i64, ptr %job, i64 {Field.CACHES.value}
  %caches = load ptr, ptr %caches.at
  %own.words = mul i64 %own, {len(Cache)}
  %cache = getelementptr i64, ptr %caches, i64 %own.words
  %cache.length = getelementptr i64, ptr %cache, i64 1
  %start.job = getelementptr i64, ptr %job, i64 %start.field
  %length.job = getelementptr i64, ptr %job, i64 %length.field
  %is.window = icmp eq i64 %where, 2
  %window.start.at = select i1 %is.window, ptr %start.job, ptr %cache
  %window.length.at = select i1 %is.window, ptr %length.job, ptr %cache.length
  %window.start = load i64, ptr %window.start.at
  %length.base = load i64, ptr %window.length.at
  %window.length = add i64 %length.base, %length.more"""
