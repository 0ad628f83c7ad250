"""Cellar. Launches and their outcomes: the seam between the driver model and compiled code.

Two lowerings stand behind this seam, `softgpu.jit` (fast) and `softgpu.oracle` (plain). The core
uses either through the protocols below and cannot tell them apart.

True of every execution:
- an address is a host address, and generic, global, shared and local addresses are one space;
- a kernel cannot end the process: each of its errors comes back as a `Fault`;
- after DONE or FAULT an execution is spent; after YIELDED, `run` continues where it stopped.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum, unique
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeAlias

from cudasync.softgpu.interface import DEFAULT_BUDGET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cudasync.errors import PtxError
    from cudasync.ptx import ir
    from cudasync.ptx.types import StateSpace
    from cudasync.softgpu.interface.access_recording import Recording

# A launch has this many times the budget of a block.
_BLOCK_BUDGETS = 32

Dim3: TypeAlias = tuple[int, int, int]
"""x, y, z."""


class AllocationSnapshot:
    """The memory that a kernel may touch at one moment: sorted, disjoint ranges [start, end).

    Immutable. The table lies at `address` as `count` pairs of 64-bit words, as long as the
    snapshot lives; compiled code searches it there.
    """

    __slots__ = ("_table", "address", "count")

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Take (start, end) pairs in any order; empty pairs are dropped.

        ValueError if two overlap: the caller's bookkeeping is then broken.
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
        """The bytes from `address` to the end of its range; 0 outside all ranges."""
        table = self._table
        place = bisect_right(table, address, 0, 2 * self.count)
        return table[place] - address if place % 2 else 0

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges, sorted by address."""
        table = self._table
        return [(table[2 * index], table[2 * index + 1]) for index in range(self.count)]


@dataclass(slots=True)
class Launch:
    """One launch: its shape, its arguments, and the memory while the kernel runs.

    It must not be changed. A frozen dataclass would be three times as expensive to make.

    `parameters` is the packed parameter block (at least CompiledKernel.parameter_size bytes).
    `symbols` holds the device address of every variable of the module, in the order of
    CompiledModule.variables. `budget` bounds the work of each block in loops and calls, roughly in
    instructions of a warp. `recording` records the accesses of a module compiled with `record`.
    `workspace` is the address of a cooperative launch's grid barrier, else 0.
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
        """The budget of all blocks together."""
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
    """The error of a kernel, and its place.

    `line` is the PTX line, and `threads` are the thread coordinates of the lanes at fault within
    `block`. `address`, `size_bytes` and `space` describe the access of the first of them; they are
    0, 0 and None if the fault is no access. `is_write` is True for stores and atomics. `window` is
    start and size of the shared or local memory that an access missed.
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
    """The results of `Execution.run`."""

    DONE = "done"
    YIELDED = "yielded"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one call of `Execution.run`; `fault` is set exactly for FAULT.

    With YIELDED, `has_moved` says whether the kernel made progress. If it did not, only other work
    can end its wait.
    """

    kind: OutcomeKind
    fault: Fault | None = None
    has_moved: bool = False


class Execution(Protocol):
    """A running launch."""

    def run(self) -> Outcome:
        """Run, without the GIL, until the kernel is done, has failed, or waits politely.

        YIELDED means that every living thread waits in a loop for memory to change: call again
        after other work has had a turn. Two threads must not call it at once.
        """

    def stop(self) -> None:
        """End the launch soon with STOPPED, where it is; callable from any thread at any time.

        An active `run`, or the next one, then returns within a second.
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
        """The most threads of a block: from .maxntid or .reqntid, else 1024."""

    @property
    def unit(self) -> int:
        """The bytes of memory that each mark of a recording stands for."""

    @property
    def sites(self) -> tuple[ir.Instruction, ...]:
        """The instructions that race reports name (`race_records`); empty without race checks."""

    @property
    def parts(self) -> tuple[ir.Function, ...]:
        """The kernel and all functions that it may call, as lowered; empty if `sites` is."""

    @property
    def sees_threads(self) -> bool:
        """Whether checks can see threads affect each other; False if threads run one by one."""

    def shares(self, block: Dim3) -> bool:
        """Whether threads of such blocks may race on shared memory, as compiled with `races`."""

    def has_windows(self, block: Dim3) -> bool:
        """Whether threads of such blocks use shared or local memory, compiled with `windows`."""

    def parts_ways(self, block: Dim3) -> bool:
        """Whether threads of such blocks may miss a barrier, as compiled with `convergence`."""

    def start(self, launch: Launch) -> Execution:
        """Prepare the execution; nothing runs before `Execution.run`."""


class CompiledModule(Protocol):
    """A PTX module that has been checked and lowered."""

    @property
    def kernels(self) -> Mapping[str, CompiledKernel]: ...

    @property
    def refused(self) -> Mapping[str, PtxError]:
        """The kernels that need something unsupported, with reason and line."""

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
        reads: bool = True,
        windows: bool = False,
        units: bool = False,
        image: bytes | None = None,
        only: str | None = None,
    ) -> CompiledModule:
        """Lower every kernel if possible; PtxError for the first instruction that is no PTX.

        With `record`, launches can be recorded, and the code is slower; without `reads`, a
        lowering may leave plain loads out. With `races`, races between their threads can be found,
        with `windows`, reads of unwritten shared and local memory, if the lowering supports it.
        With `units`, a recording may have a mark for each unit, see `CompiledKernel.unit`.
        `image` is the module's text, for a disk cache. With `only`, no other kernel is lowered.
        """


@dataclass(frozen=True, slots=True)
class Found:
    """A module that was compiled before, and the target and version of its PTX."""

    compiled: CompiledModule
    target: str
    version: tuple[int, int]


class Find(Protocol):
    """The type of a function that finds modules compiled before, by any process."""

    def __call__(self, image: bytes, *, memcheck: bool = True) -> Found | None:
        """The module of this PTX; None if it is not cached, or has variables or refused kernels."""
