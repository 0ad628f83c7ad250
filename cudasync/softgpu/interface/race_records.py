"""Cellar. What compiled code and the check of races within a kernel have in common.

Every word of watched memory has a *cell*: who wrote it last, and up to three of those who have read
it since. An entry of a cell is 64 bits: when, which warp of the launch, which lane, by which
instruction, whether strong (an atomic or the like), and whether by a copy that goes on behind it.
Entries of 0 are nobody's. Where bytes of a word go different ways, the word is split: then each of
its bytes has a cell of its own.

Time is one counter for the launch, which goes on whenever threads synchronise: a launch that is
recorded runs on one thread, so what happened up to a moment has a time up to that moment's. Each
warp keeps a time up to which it is behind all warps of its block (`FLOOR`, by barriers), and one up
to which its own lanes are behind each other (`TOGETHER`). All else that orders threads is the
business of the check, which is asked (`CALLBACK`) where these two do not answer.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag, auto, unique
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.ptx import ir

# Entries of a cell: bit 0 of the first says that the word is split.
SPLIT: Final = 1
STRONG: Final = 2
PENDING: Final = 4
SITE_SHIFT, SITE_BITS = 3, 10
LANE_SHIFT, LANE_BITS = 13, 5
WARP_SHIFT, WARP_BITS = 18, 20
TIME_SHIFT: Final = 38
MOST_SITES: Final = 1 << SITE_BITS
THREAD_MASK: Final = (1 << TIME_SHIFT) - (1 << LANE_SHIFT)
WARP_MASK: Final = (1 << TIME_SHIFT) - (1 << WARP_SHIFT)
READERS: Final = 3
CELL_BYTES: Final = 8 * (1 + READERS)
# Of four bytes of memory: a cell, and four more for when it is split.
WORD_BYTES: Final = CELL_BYTES
SPLIT_BYTES: Final = 4 * CELL_BYTES

# What notes an access that may be one to shared memory.
NEAR_NAME: Final = "@cudasync.race.note.near"

MOST_WARPS: Final = 64
BARRIERS: Final = 16
MEMORIES: Final = 256


@unique
class Head(IntEnum):
    """Words that a launch has once."""

    TIME = 0
    CALLBACK = auto()
    # Rows of global memory that is watched: start, end, cells, cells of bytes.
    ROWS = auto()
    ROW_COUNT = auto()
    # A byte for each pair of instructions: 1 once a race between them was told.
    TOLD = auto()
    # More than 0 if some strong access may bring news of other threads.
    OBJECTS = auto()
    # What the callback is to look at: an `Ask`, and what belongs to it.
    ASKED = auto()
    ARGUMENTS = auto()


ROW_WORDS: Final = 4
ARGUMENT_WORDS: Final = 12
HEAD_WORDS: Final = Head.ARGUMENTS + ARGUMENT_WORDS

_PER_WARP = ("FLOOR", "TOGETHER", "FENCED", "FENCED_WIDE", "FLOOR_FENCED", "COPIED")


@unique
class State(IntEnum):
    """Words of a slot, which has one block at a time; those from FLOOR on are the block's own."""

    HEAD = 0
    # The linear index of the block, plus one; the number of its first warp in the launch.
    BLOCK = auto()
    FIRST_WARP = auto()
    WARPS = auto()
    SHARED = auto()
    SHARED_BYTES = auto()
    CELLS = auto()
    SPLIT_CELLS = auto()
    # The row that was found last.
    ROW = auto()
    # What makes one block a barrier that the check has to hear of.
    KNOWS = auto()
    # The first of one word for each warp, each.
    FLOOR = 16
    TOGETHER = 16 + MOST_WARPS
    FENCED = 16 + 2 * MOST_WARPS
    FENCED_WIDE = 16 + 3 * MOST_WARPS
    FLOOR_FENCED = 16 + 4 * MOST_WARPS
    COPIED = 16 + 5 * MOST_WARPS
    # By number of the barrier and warp: a bit for each lane, odd or even times.
    PARITY = 16 + 6 * MOST_WARPS
    # By number and parity: when the last lanes came.
    CAME = PARITY + BARRIERS * MOST_WARPS
    # What the check has answered lately: whom it asked about, and until when that is known.
    MEMORY = CAME + 2 * BARRIERS


STATE_WORDS: Final = State.MEMORY + 2 * MEMORIES


@unique
class Ask(IntEnum):
    """What the callback is told or asked."""

    CONFLICT = 1
    ARRIVE = 2
    LEAVE = 3
    WARP = 4
    FENCE = 5
    STRONG = 6
    COPIES = 7


class Strength(IntFlag):
    """What a strong access does, as `Ask.STRONG` is told it."""

    READS = 1
    WRITES = 2
    ACQUIRES = 4
    RELEASES = 8
    # Beyond the block.
    WIDE = 16
    # What others have left with the word stays, as one who waits is told of all who arrived.
    JOINS = 32


ARRIVES: Final = Strength.WRITES | Strength.RELEASES | Strength.JOINS
FINDS_OVER: Final = Strength.READS | Strength.ACQUIRES


# How threads of the same grid beyond the block are named in PTX; without a scope, an access by
# atom or red, or a volatile one, is of the device or wider.
_NARROW = frozenset({"cta"})
_STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"})
_OPCODES = frozenset({"ld", "ldu", "st", "atom", "red", "cp", "ldmatrix", "stmatrix", "wmma"})


def is_strong(instruction: ir.Instruction) -> bool:
    """Whether two of these at once are no race."""
    return instruction.opcode in ("atom", "red") or not _STRONG.isdisjoint(instruction.modifiers)


def is_wide(instruction: ir.Instruction) -> bool:
    """Whether its scope is more than the block."""
    return _NARROW.isdisjoint(instruction.modifiers)


def strength_of(instruction: ir.Instruction) -> Strength:
    """What a strong access does."""
    modifiers = set(instruction.modifiers)
    found = Strength(0)
    if instruction.opcode in ("ld", "ldu", "atom", "red"):
        found |= Strength.READS
    if instruction.opcode in ("st", "atom", "red"):
        found |= Strength.WRITES
    if modifiers & {"acquire", "acq_rel"}:
        found |= Strength.ACQUIRES
    if modifiers & {"release", "acq_rel"}:
        found |= Strength.RELEASES
    if is_wide(instruction):
        found |= Strength.WIDE
    return found


def sites(instructions: Sequence[ir.Instruction]) -> dict[int, int]:
    """The site of each instruction that may touch memory, by its number; 0 is any beyond those."""
    places = [n for n, each in enumerate(instructions) if each.opcode in _OPCODES]
    return {place: site for site, place in enumerate(places[: MOST_SITES - 1], 1)}
