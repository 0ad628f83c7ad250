"""Cellar, jit. The record that Python and compiled code share: one array of 64-bit words.

A job belongs to one thread of execution. It names the launch's data, the scratch memory of the
running block and the blocks to run, and it receives the report of a fault.
"""

from __future__ import annotations

from enum import IntEnum, auto, unique
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudasync.softgpu.jit.vector_ir.builder import Builder

# The largest block; the table of coordinates has a row of this many for each axis.
MOST_THREADS = 1024
# Barriers of a block: their number, and the number of 32-bit words for each, see `named_barriers`.
BARRIERS = 16
BARRIER_WORDS = 5
# The budget of a block is handed out in grains: one lasts some ten milliseconds, or a tenth of a
# second for slow instructions.
GRAIN = 2**23

# Return values of a warp function, beside the codes of suspension points. HELD resumes the warp at
# the suspension points that hold its lanes.
DONE = -1
FAILED = -2
HELD = 1 << 20
# Set in a warp's return value if all its lanes wait at barriers, and none for memory.
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
    # The table of a recording; its count is 0 if nothing is recorded.
    RECORDING = auto()
    RECORDING_COUNT = auto()
    # Scratch of the block: its shared window, local slabs, and the frames and states of its warps.
    SHARED = auto()
    SHARED_BYTES = auto()
    LOCAL = auto()
    LOCAL_BYTES = auto()
    FRAMES = auto()
    STATES = auto()
    # The words that `named_barriers` keeps for each number.
    BARRIERS = auto()
    # The words of `access_descriptors.Cache` for each checked instruction.
    CACHES = auto()
    # tid.x, tid.y and tid.z of every thread, for blocks in which warps are not rows.
    THREADS = auto()
    # Blocks FIRST to END (excluded), by linear index. IS_RESUMED is set once FIRST has begun, if it
    # can suspend. FIRST is END when all are done, so that a second run of a job does nothing.
    FIRST_BLOCK = auto()
    END_BLOCK = auto()
    IS_RESUMED = auto()
    # The budget of a fresh block; the grain, which is 0 once the launch must stop; the rest of the
    # current grain, and the reserve not yet granted. See `instruction_budget`.
    BUDGET = auto()
    GRAIN = auto()
    BUDGET_LEFT = auto()
    RESERVE = auto()
    # 1 if the job's thread receives signals. Then the exception that a handler raised: type, value
    # and traceback; and the time until which the block may still ask for more budget.
    LISTENS = auto()
    RAISED_TYPE = auto()
    RAISED_VALUE = auto()
    RAISED_TRACEBACK = auto()
    UNTIL_NS = auto()
    # The budget of all blocks of the launch, and the amount spent by those of this job.
    TOTAL = auto()
    SPENT = auto()
    # The memory through which a cooperative grid synchronises, or 0.
    WORKSPACE = auto()
    # 1 if stores of whole lines are non-temporal, see `nontemporal_stores`.
    NONTEMPORAL = auto()
    # Rounds that a block may make in this turn while its warps move; whether any warp has moved.
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
    # Never written: the start of a window without a start.
    ZERO = auto()
    # The report. The code at the label `fault` writes the warp's number.
    FAULT_KIND = auto()
    FAULT_POSITION = auto()
    FAULT_WARP = auto()
    FAULT_LANES = auto()
    FAULT_ADDRESS = auto()
    # For a bad access: which memory it may touch, see `Where`.
    FAULT_WHERE = auto()
    # The state of the slot if races within the kernel are checked, else 0; see `race_calls`.
    RACES = auto()
    # The state of the slot's windows if they are watched, else 0; see
    # `softgpu/interface/initialisation_windows.py`.
    WINDOWS = auto()
    # The block whose shared memory is wholly written, if the windows are watched.
    WRITTEN_BLOCK = auto()
    # The state of the slot if arrivals at barriers are recorded, else 0; see
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
    """The return value of the compiled kernel."""

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
