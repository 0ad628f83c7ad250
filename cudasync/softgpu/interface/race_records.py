"""Cellar. Race records: the state that compiled code shares with the race check of a kernel.

Every word of watched memory has a *cell*: its last writer, and up to three readers since. An entry
of a cell is 64 bits: time, warp of the launch, lane, instruction, whether strong (an atomic or the
like), and whether by an asynchronous copy that is still pending. Entries of 0 are empty. If the
bytes of a word are accessed differently, the word is split: each byte then has its own cell.

Time is one counter for the launch, which advances whenever threads synchronise. A recorded launch
runs on one thread, so everything before a moment has a time up to that moment's. Each warp keeps
two times. Up to `FLOOR`, the accesses of all warps of its block come before its next access, by
barriers. Up to `TOGETHER`, the same holds for its own lanes. The check knows all other order;
compiled code asks it (`CALLBACK`) if these two times do not answer.
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
# For four bytes of memory: the bytes of a cell, and of four more cells after a split.
WORD_BYTES: Final = CELL_BYTES
SPLIT_BYTES: Final = 4 * CELL_BYTES

# The function that notes an access that may be to shared memory.
NEAR_NAME: Final = "@cudasync.race.note.near"

MOST_WARPS: Final = 64
BARRIERS: Final = 16
MEMORIES: Final = 256


@unique
class Head(IntEnum):
    """Words that exist once for a launch."""

    TIME = 0
    CALLBACK = auto()
    # Rows of watched global memory: start, end, cells, cells of bytes.
    ROWS = auto()
    ROW_COUNT = auto()
    # A byte for each pair of instructions: 1 once a race between them was reported.
    TOLD = auto()
    # More than 0 if a strong read may learn what other threads have done.
    OBJECTS = auto()
    # The arguments of the callback: an `Ask`, and its operands.
    ASKED = auto()
    ARGUMENTS = auto()


ROW_WORDS: Final = 4
ARGUMENT_WORDS: Final = 12
HEAD_WORDS: Final = Head.ARGUMENTS + ARGUMENT_WORDS

_PER_WARP = ("FLOOR", "TOGETHER", "FENCED", "FENCED_WIDE", "FLOOR_FENCED", "COPIED")


@unique
class State(IntEnum):
    """Words of a slot, which has one block at a time; words from FLOOR on are the block's own."""

    HEAD = 0
    # The linear index of the block, plus one; the number of its first warp in the launch.
    BLOCK = auto()
    FIRST_WARP = auto()
    WARPS = auto()
    SHARED = auto()
    SHARED_BYTES = auto()
    CELLS = auto()
    SPLIT_CELLS = auto()
    # The row found by the last search.
    ROW = auto()
    # 1 if the check must be told of the block's barriers.
    KNOWS = auto()
    # Each of these is the first of one word for each warp.
    FLOOR = 16
    TOGETHER = 16 + MOST_WARPS
    FENCED = 16 + 2 * MOST_WARPS
    FENCED_WIDE = 16 + 3 * MOST_WARPS
    FLOOR_FENCED = 16 + 4 * MOST_WARPS
    COPIED = 16 + 5 * MOST_WARPS
    # By number of the barrier and warp: a bit for each lane, the parity of its barriers.
    PARITY = 16 + 6 * MOST_WARPS
    # By number and parity: the time at which the last lanes came.
    CAME = PARITY + BARRIERS * MOST_WARPS
    # The latest answers of the check: the threads of the question, and the time of the answer.
    MEMORY = CAME + 2 * BARRIERS


STATE_WORDS: Final = State.MEMORY + 2 * MEMORIES


@unique
class Ask(IntEnum):
    """The callback's messages and questions."""

    CONFLICT = 1
    ARRIVE = 2
    LEAVE = 3
    WARP = 4
    FENCE = 5
    STRONG = 6
    COPIES = 7


class Strength(IntFlag):
    """The effects of a strong access, as an operand of `Ask.STRONG`."""

    READS = 1
    WRITES = 2
    ACQUIRES = 4
    RELEASES = 8
    # The scope is wider than the block.
    WIDE = 16
    # Keeps what earlier writers left with the word, because a waiter learns from all arrivals.
    JOINS = 32


ARRIVES: Final = Strength.WRITES | Strength.RELEASES | Strength.JOINS
FINDS_OVER: Final = Strength.READS | Strength.ACQUIRES


# PTX scopes that do not reach beyond the block. Without a scope, atom, red and volatile accesses
# have the device's scope or a wider one.
_NARROW = frozenset({"cta"})
_STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"})
_OPCODES = frozenset({"ld", "ldu", "st", "atom", "red", "cp", "ldmatrix", "stmatrix", "wmma"})


def is_strong(instruction: ir.Instruction) -> bool:
    """Whether two concurrent accesses by such instructions are no race."""
    return (
        instruction.opcode in ("atom", "red")
        or not _STRONG.isdisjoint(instruction.modifiers)
        or instruction.is_guess
    )


def is_ordering(instruction: ir.Instruction) -> bool:
    """Whether it acquires what other threads have released, or releases to others."""
    return not {"acquire", "release", "acq_rel"}.isdisjoint(instruction.modifiers)


def is_wide(instruction: ir.Instruction) -> bool:
    """Whether its scope is wider than the block."""
    return _NARROW.isdisjoint(instruction.modifiers)


def strength_of(instruction: ir.Instruction) -> Strength:
    """The effects of a strong access."""
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
    """The site of each instruction that may touch memory, by its index; further ones have 0."""
    places = [n for n, each in enumerate(instructions) if each.opcode in _OPCODES]
    return {place: site for site, place in enumerate(places[: MOST_SITES - 1], 1)}
