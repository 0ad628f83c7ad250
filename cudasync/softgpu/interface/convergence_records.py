"""Cellar. What compiled code and the check of convergence have in common.

Each slot, which has one block at a time, has a *state*. Compiled code (`jit/convergence`) counts in
it which threads have ended, and which wait at barriers of the whole block. Where all that a mask
names are there, nothing is asked. The check (`core/checks/meetings.py`) is asked where lanes that
live are named and are not there, and where a barrier opens that not all threads have come to.
"""

from __future__ import annotations

from enum import IntEnum, auto, unique
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cudasync.ptx import ir

MOST_WARPS: Final = 32
BARRIERS: Final = 16
# What a line of PTX may be where lanes of a warp meet; a warp's barrier has none of these modes.
_OPCODES: Final = ("bar", "shfl", "vote", "match", "redux", "elect")
_MODES: Final = (
    "", "up", "down", "bfly", "idx", "all", "any", "uni", "ballot",
    "add", "min", "max", "and", "or", "xor",
)  # fmt: skip


@unique
class State(IntEnum):
    """Words of a state; those from ENDED on are the block's own."""

    CALLBACK = 0
    # What the callback is to look at: an `Ask`, and what belongs to it.
    ASKED = auto()
    ARGUMENTS = auto()
    # The linear index of the block, plus one; how many threads a block has.
    BLOCK = 16
    THREADS = auto()
    # How many threads have ended; 1 where lanes of some warp are waited for.
    ENDED = auto()
    AWAITED = auto()
    # By the number of a barrier: threads that wait there, the line where the first of them does.
    COME = 32
    LINE = 32 + BARRIERS
    # By warp: lanes that have ended, that wait at a barrier, and 1 where lanes are waited for.
    GONE = 32 + 2 * BARRIERS
    STOPPED = GONE + MOST_WARPS
    WAITING = STOPPED + MOST_WARPS


STATE_WORDS: Final = State.WAITING + MOST_WARPS


@unique
class Ask(IntEnum):
    """What the callback is told; a warp and a mask of its lanes come first."""

    # Lanes meet: where their members lie, how many words apart, the line, and its `meeting`.
    MEETING = 1
    # Lanes come to a barrier of the block: the line, the barrier's number.
    BARRIER = 2
    # Lanes end.
    END = 3
    # A barrier opens, where lanes of some warp are waited for.
    OPENED = 4
    # A barrier at another line than the first threads of the block wait at: both lines.
    MISMATCH = 5
    # A barrier opens for fewer threads than the block has: the line, how many there are.
    SHORT = 6
    # Another block begins; no warp, no mask.
    FRESH = 7
    # A lane uses what it read of lanes that were not there: the line, that of the shuffle.
    UNDEFINED = 8


def meeting(instruction: ir.Instruction) -> int:
    """A number for what lanes of a warp do together: those that meet do the same."""
    opcode = "bar" if instruction.opcode == "barrier" else instruction.opcode
    mode = next((each for each in _MODES[1:] if each in instruction.modifiers), "")
    return _OPCODES.index(opcode) * len(_MODES) + _MODES.index(mode)


def name_of(number: int) -> str:
    """The instruction that such a number is of."""
    opcode, mode = divmod(number, len(_MODES))
    name = "bar.warp" if _OPCODES[opcode] == "bar" else _OPCODES[opcode]
    return f"{name}.sync{'.' * bool(mode)}{_MODES[mode]}"


def has_members(instruction: ir.Instruction) -> bool:
    """Whether lanes of a warp meet there that a mask names."""
    if "sync" not in instruction.modifiers:
        return False
    is_bar = instruction.opcode in ("bar", "barrier")
    return "warp" in instruction.modifiers if is_bar else instruction.opcode in _OPCODES
