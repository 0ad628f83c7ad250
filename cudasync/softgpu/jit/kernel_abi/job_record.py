"""Cellar, jit. The record through which Python and compiled code talk: one array of 64-bit words.

A job belongs to one thread of execution; it names the launch's data, the scratch memory of the
block that runs, the blocks to run, and takes the report when something goes wrong.
"""

from __future__ import annotations

from enum import IntEnum, auto, unique
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.builder import Builder

# The largest block; the table of coordinates has a row of this many for each axis.
MOST_THREADS = 1024
# Of a block: how many there are, and how many words of 32 bits each of them has, see
# `named_barriers`.
BARRIERS = 16
BARRIER_WORDS = 5
# The budget of a block is handed out in grains: some ten milliseconds, of slow instructions a
# tenth of a second.
GRAIN = 2**23

# What a warp function returns besides the code of a stop. HELD resumes it
# at the stops where its lanes are held.
DONE = -1
FAILED = -2
HELD = 1 << 20
# Set in what a warp returns if all its lanes wait at barriers, none for memory.
AT_BARRIER = 1 << 24


@unique
class Where(IntEnum):
    """Which memory an access may touch; the number is an argument of `@cudasync.check`."""

    ALLOCATIONS = 0
    ANYWHERE = 1
    WINDOW = 2


@unique
class Field(IntEnum):
    """Words of a job, in order."""

    PARAMETERS = 0
    PARAMETER_BYTES = auto()
    SYMBOLS = auto()
    ALLOCATIONS = auto()
    ALLOCATION_COUNT = auto()
    # The table of a recording; its count is 0 where none is made.
    RECORDING = auto()
    RECORDING_COUNT = auto()
    # Scratch of the block: its shared window, local slabs, frames and states of its warps.
    SHARED = auto()
    SHARED_BYTES = auto()
    LOCAL = auto()
    LOCAL_BYTES = auto()
    FRAMES = auto()
    STATES = auto()
    # What `barriers` keeps for each number.
    BARRIERS = auto()
    # Two words per checked instruction: start and length of the range it last lay in.
    CACHES = auto()
    # tid.x, tid.y and tid.z of every thread, for blocks whose warps are no rows.
    THREADS = auto()
    # Blocks FIRST to END (excluded), by linear index; IS_RESUMED once FIRST has begun, if it can
    # stop. FIRST is END when all are done, so that running a job again does nothing twice.
    FIRST_BLOCK = auto()
    END_BLOCK = auto()
    IS_RESUMED = auto()
    # What a fresh block may spend; what it may spend before it asks for more, 0 once the launch is
    # to stop; what is left of that, and what it has not asked for yet. See `instruction_budget`.
    BUDGET = auto()
    GRAIN = auto()
    BUDGET_LEFT = auto()
    RESERVE = auto()
    # 1 if the thread that runs it is the one that hears signals. The exception that one of them
    # raised: type, value and traceback; and until when it may ask for more behind that.
    LISTENS = auto()
    RAISED_TYPE = auto()
    RAISED_VALUE = auto()
    RAISED_TRACEBACK = auto()
    UNTIL_NS = auto()
    # What all blocks of the launch may spend, and what those of this job have.
    TOTAL = auto()
    SPENT = auto()
    # The memory through which a cooperative grid synchronises, or 0.
    WORKSPACE = auto()
    # 1 if stores of whole lines are to go past the caches, see `nontemporal_stores`.
    NONTEMPORAL = auto()
    # Rounds that a block may make in this turn while its warps get on; whether any has.
    ROUNDS = auto()
    HAS_MOVED = auto()
    HAD_MOVED = auto()
    WARPS = auto()
    LAST_MASK = auto()
    NTID_X = auto()
    NTID_Y = auto()
    NTID_Z = auto()
    NCTAID_X = auto()
    NCTAID_Y = auto()
    NCTAID_Z = auto()
    # Never written: the start of a window that has none.
    ZERO = auto()
    # The report. The warp's number is written by whoever leaves through `fault`.
    FAULT_KIND = auto()
    FAULT_POSITION = auto()
    FAULT_WARP = auto()
    FAULT_LANES = auto()
    FAULT_ADDRESS = auto()
    # Of a bad access: which memory it might have touched, see `Where`.
    FAULT_WHERE = auto()
    # The state of the slot where races within the kernel are looked for, else 0; see `race_calls`.
    RACES = auto()
    # The state of the slot's windows where they are watched, else 0; see
    # `softgpu/interface/initialisation_windows.py`.
    WINDOWS = auto()
    # The state of the slot where it is told who comes to barriers, else 0; see
    # `softgpu/interface/convergence_records.py`.
    CONVERGENCE = auto()


@unique
class FaultCode(IntEnum):
    """FAULT_KIND, as compiled code writes it."""

    ILLEGAL_ADDRESS = 1
    MISALIGNED = 2
    TIMEOUT = 3
    TRAP = 4
    ASSERT = 5
    BARRIER = 6


@unique
class Status(IntEnum):
    """What the compiled kernel returns."""

    DONE = 0
    YIELDED = 1
    FAULT = 2


def field_address(builder: Builder, field: Field) -> str:
    """A pointer to a word of `%job`."""
    return builder.name(f"getelementptr i64, ptr %job, i64 {field.value}")


def read_field(builder: Builder, field: Field, type_: str = "i64") -> str:
    """A word of `%job` as an integer of `type_`, or as a pointer."""
    text = builder.name(f"load i64, ptr {field_address(builder, field)}")
    if type_ == "i64":
        return text
    if type_ == "ptr":
        return builder.name(f"inttoptr i64 {text} to ptr")
    return builder.name(f"trunc i64 {text} to {type_}")


def write_field(builder: Builder, field: Field, text: str) -> None:
    builder.emit(f"store i64 {text}, ptr {field_address(builder, field)}")
