"""Cellar. Convergence records: the state that compiled code shares with the convergence check.

Each slot, which has one block at a time, has a *state*. In it, compiled code (`jit/convergence`)
counts the threads that have ended, and those that wait at barriers of the whole block. If all
lanes of a mask are present, compiled code goes on alone. It calls the check
(`core/checks/convergence.py`) if a mask names a living lane that is absent, and if a barrier opens
without all threads.
"""

from __future__ import annotations

from enum import IntEnum, auto, unique
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cudasync.ptx import ir

MOST_WARPS: Final = 32
BARRIERS: Final = 16
# The opcodes at which lanes of a warp meet, and their modes; a warp's barrier has none.
_OPCODES: Final = ("bar", "shfl", "vote", "match", "redux", "elect")
_MODES: Final = (
    "", "up", "down", "bfly", "idx", "all", "any", "uni", "ballot",
    "add", "min", "max", "and", "or", "xor",
)  # fmt: skip


@unique
class State(IntEnum):
    """Words of a state; the words from ENDED on belong to the current block."""

    CALLBACK = 0
    # The arguments of the callback: an `Ask`, and its operands.
    ASKED = auto()
    ARGUMENTS = auto()
    # The linear index of the block, plus one; the number of threads of a block.
    BLOCK = 16
    THREADS = auto()
    # The number of threads that have ended; 1 if lanes of some warp are awaited.
    ENDED = auto()
    AWAITED = auto()
    # By the number of a barrier: the number of waiting threads, the line of the first of them.
    COME = 32
    LINE = 32 + BARRIERS
    # By warp: lanes that have ended, lanes that wait at a barrier, and 1 if lanes are awaited.
    GONE = 32 + 2 * BARRIERS
    STOPPED = GONE + MOST_WARPS
    WAITING = STOPPED + MOST_WARPS


STATE_WORDS: Final = State.WAITING + MOST_WARPS


@unique
class Ask(IntEnum):
    """The callback's messages; the first operands are a warp and a mask of its lanes."""

    # Lanes meet: the address and spacing in words of their masks, the line, and its `meeting`.
    MEETING = 1
    # Lanes come to a barrier of the block: the line, the barrier's number.
    BARRIER = 2
    # Lanes end.
    END = 3
    # A barrier opens while lanes of some warp are awaited.
    OPENED = 4
    # Threads come to a barrier while the block's first threads wait at another line: both lines.
    MISMATCH = 5
    # A barrier opens for fewer threads than the block has: the line, and their number.
    SHORT = 6
    # Another block begins; no warp, no mask.
    FRESH = 7
    # A lane uses a value read from an absent lane: the line, and the shuffle's line.
    UNDEFINED = 8


def meeting(instruction: ir.Instruction) -> int:
    """The number of an instruction at which lanes meet: lanes with the same number can meet."""
    opcode = "bar" if instruction.opcode == "barrier" else instruction.opcode
    mode = next((each for each in _MODES[1:] if each in instruction.modifiers), "")
    return _OPCODES.index(opcode) * len(_MODES) + _MODES.index(mode)


def name_of(number: int) -> str:
    """The instruction with a `meeting` number."""
    opcode, mode = divmod(number, len(_MODES))
    name = "bar.warp" if _OPCODES[opcode] == "bar" else _OPCODES[opcode]
    return f"{name}.sync{'.' * bool(mode)}{_MODES[mode]}"


def has_members(instruction: ir.Instruction) -> bool:
    """Whether lanes of a warp that a mask names meet at this instruction."""
    if "sync" not in instruction.modifiers:
        return False
    is_bar = instruction.opcode in ("bar", "barrier")
    return "warp" in instruction.modifiers if is_bar else instruction.opcode in _OPCODES
