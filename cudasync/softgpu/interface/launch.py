"""Cellar. What a launch is, and what may come of it: the seam between the driver core and code.

Two lowerings stand behind this seam, `softgpu.jit` (fast) and `softgpu.oracle` (plain); the core
talks to either through the protocols below and cannot tell them apart.

True of every execution:
- an address is a host address, and generic, global, shared and local addresses are one space;
- nothing a kernel does ends the process: what it does wrong comes back as a `Fault`;
- after DONE or FAULT an execution is spent; after YIELDED `run` goes on where it stopped.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum, unique
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cudasync.errors import PtxError
    from cudasync.ptx import ir
    from cudasync.ptx.types import StateSpace
    from cudasync.softgpu.interface.access_recording import Recording

# Some ten seconds of a block, of slow instructions a minute or two; and what a launch may do.
DEFAULT_BUDGET = 2**33
_BLOCK_BUDGETS = 32

Dim3: TypeAlias = tuple[int, int, int]
"""x, y, z."""


class AllocationSnapshot:
    """The memory a kernel may touch at one moment: sorted, disjoint ranges [start, end).

    Immutable. The table lies at `address` as `count` pairs of 64-bit words, for as long as the
    snapshot lives; compiled code searches it there.
    """

    __slots__ = ("_table", "address", "count")

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Take (start, end) pairs in any order; empty ones vanish.

        ValueError if two overlap: then the caller's bookkeeping is broken.
        """
        ordered = sorted((start, end) for start, end in ranges if end > start)
        for (_, end), (start, _) in pairwise(ordered):
            if start < end:
                raise ValueError(f"allocations overlap at {start:#x}")
        self.count = len(ordered)
        # One pair more than needed, so that the address of an empty table is valid too.
        self._table = (ctypes.c_uint64 * (2 * self.count + 2))()
        for index, (start, end) in enumerate(ordered):
            self._table[2 * index] = start
            self._table[2 * index + 1] = end
        self.address = ctypes.addressof(self._table)

    def rest(self, address: int) -> int:
        """The bytes from `address` to the end of the range that it lies in; 0 if in none."""
        table = self._table
        place = bisect_right(table, address, 0, 2 * self.count)
        return table[place] - address if place % 2 else 0

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges, sorted by address."""
        table = self._table
        return [(table[2 * index], table[2 * index + 1]) for index in range(self.count)]


@dataclass(slots=True)
class Launch:
    """One launch: shape, arguments, and the memory as it is while the kernel runs.

    Not to be changed; but to be frozen would make it three times as expensive to make.

    `parameters` is the packed parameter block (at least CompiledKernel.parameter_size bytes);
    `symbols` holds the device address of every variable of the module, in the order of
    CompiledModule.variables. `budget` bounds what each block may do in loops and calls, counted in
    instructions of a warp, roughly. `recording` takes down what a module compiled with `record`
    does. `workspace` is where a cooperative launch keeps its grid's barrier, else 0.
    """

    grid: Dim3
    block: Dim3
    dynamic_shared_bytes: int
    parameters: bytes
    symbols: Sequence[int]
    allocations: AllocationSnapshot
    budget: int = DEFAULT_BUDGET
    recording: Recording | None = None
    workspace: int = 0

    @property
    def total_budget(self) -> int:
        """What all blocks may do together."""
        total = _BLOCK_BUDGETS * self.budget
        return min(2**62, total)


@unique
class FaultKind(Enum):
    """How a kernel failed."""

    ILLEGAL_ADDRESS = "illegal address"
    MISALIGNED = "misaligned address"
    TIMEOUT = "launch timed out"
    STOPPED = "launch stopped"
    TRAP = "trap"
    ASSERT = "assertion failed"
    BARRIER = "barrier that can never complete"


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong, and where.

    `line` is the PTX line, `threads` are the thread coordinates of the lanes at fault within
    `block`. `address`, `size_bytes` and `space` describe the access of the first of them, and
    are 0, 0 and None where no access is to blame; `is_write` is True for stores and atomics.
    `window` is start and size of the memory that an access to shared or local memory missed.
    """

    kind: FaultKind
    kernel: str
    line: int
    block: Dim3
    threads: tuple[Dim3, ...]
    address: int = 0
    size_bytes: int = 0
    is_write: bool = False
    space: StateSpace | None = None
    window: tuple[int, int] | None = None


@unique
class OutcomeKind(Enum):
    """What `Execution.run` came back with."""

    DONE = "done"
    YIELDED = "yielded"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one call of `Execution.run`; `fault` is set exactly for FAULT.

    With YIELDED, `has_moved` says whether the kernel got any further: if it did not, then only
    others can bring it on.
    """

    kind: OutcomeKind
    fault: Fault | None = None
    has_moved: bool = False


class Execution(Protocol):
    """A launch under way."""

    def run(self) -> Outcome:
        """Run, without the GIL, until the kernel is done, failed, or waits politely.

        YIELDED means that every thread still alive waits in a loop for memory to change: call
        again when others have had a turn. Not to be called from two threads at once.
        """

    def stop(self) -> None:
        """Have it end soon with STOPPED, where it is; from any thread, while `run` runs or not.

        `run` then comes back within a second, or does when it is called again.
        """


class CompiledKernel(Protocol):
    """One kernel, ready to start."""

    @property
    def name(self) -> str: ...

    @property
    def parameter_size(self) -> int:
        """Bytes of the parameter block."""

    @property
    def parameter_offsets(self) -> tuple[int, ...]: ...

    @property
    def parameter_sizes(self) -> tuple[int, ...]: ...

    @property
    def static_shared_bytes(self) -> int: ...

    @property
    def local_bytes(self) -> int:
        """Local memory of one thread, in bytes."""

    @property
    def max_threads(self) -> int:
        """The most threads a block may have: from .maxntid or .reqntid, else 1024."""

    @property
    def sites(self) -> tuple[ir.Instruction, ...]:
        """What races are told by, see `race_records`; nothing where threads can not be held so."""

    @property
    def parts(self) -> tuple[ir.Function, ...]:
        """The kernel and all it may call, as they are lowered; nothing where `sites` is."""

    @property
    def sees_threads(self) -> bool:
        """Whether it can be told what threads do to each other; False where they run one by one."""

    def shares(self, block: Dim3) -> bool:
        """Whether threads of such blocks may race on shared memory, as compiled with `races`."""

    def parts_ways(self, block: Dim3) -> bool:
        """Whether threads of such blocks may miss a barrier, as compiled with `convergence`."""

    def start(self, launch: Launch) -> Execution:
        """Prepare to execute; nothing runs before `Execution.run`."""


class CompiledModule(Protocol):
    """A PTX module that has been checked and lowered."""

    @property
    def kernels(self) -> Mapping[str, CompiledKernel]: ...

    @property
    def refused(self) -> Mapping[str, PtxError]:
        """The kernels that need what the software GPU has not, with why and where."""

    @property
    def variables(self) -> tuple[ir.Variable, ...]:
        """Module-scope .global and .const variables, in the order of `Launch.symbols`."""


class Compile(Protocol):
    """The type of `compile_module` of `softgpu.jit` and of `softgpu.oracle`."""

    def __call__(
        self,
        module: ir.Module,
        *,
        memcheck: bool = True,
        record: bool = False,
        races: bool = False,
        convergence: bool = False,
        image: bytes | None = None,
    ) -> CompiledModule:
        """Lower every kernel that can be; PtxError for the first instruction that is no PTX.

        With `record`, launches can be recorded: slower code; with `races`, their threads can be
        held against each other, too, where the lowering does that. `image` is what the module was
        parsed from, for those who keep on disk what comes of it.
        """


@dataclass(frozen=True, slots=True)
class Found:
    """A module that was compiled before, and what its PTX says of itself."""

    compiled: CompiledModule
    target: str
    version: tuple[int, int]


class Find(Protocol):
    """The type of what finds modules that were compiled before, by whatever process."""

    def __call__(self, image: bytes, *, memcheck: bool = True) -> Found | None:
        """The module of this PTX; None if it is not kept, or has variables or refused kernels."""
