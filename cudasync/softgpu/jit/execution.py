"""Cellar, jit. A launch under way: which blocks run where, and what a fault was.

Blocks of a launch run on up to as many threads as there are processors, each with its own job
and scratch memory, taking the next few blocks in turn. A kernel with a loop that waits for memory
runs on one thread, block after block; a block that only waits is set aside with its scratch, and
gets a turn whenever `run` is called again. So does a kernel whose result could depend on the
order of blocks through its atomics, so that a launch gives the same bits every time.
"""

from __future__ import annotations

import ctypes
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.barriers import NUMBERS, WORDS
from cudasync.softgpu.jit.job import FaultCode, Field, Status
from cudasync.softgpu.jit.memory import ATOMICS
from cudasync.softgpu.jit.special import MOST_THREADS
from cudasync.softgpu.launching import Dim3, Fault, FaultKind, Launch, Outcome, OutcomeKind

if TYPE_CHECKING:
    from cudasync.softgpu.jit.codegen import KernelFunction
    from cudasync.softgpu.jit.program import Program

# What one turn of a block that only waits costs of its budget.
YIELD_COST = 2**14
# Blocks that may be set aside at a time; further ones begin when one of these is done.
MOST_WAITING = 1024
# Launches of fewer threads than this are not worth a second processor.
_FEW_THREADS = 1 << 15
_CHUNKS_PER_THREAD = 8
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """What executing needs to know of a compiled kernel, beside its code."""

    program: Program
    lanes: int
    frame_bytes: int
    has_waiting_loop: bool
    is_order_free: bool


class JitExecution:
    """One launch of one kernel."""

    def __init__(
        self, function: KernelFunction, owner: object, shape: Shape, launch: Launch
    ) -> None:
        self._function = function
        # The machine code lives as long as its owner.
        self._owner = owner
        self._shape = shape
        self._launch = launch
        x, y, z = launch.grid
        self._block_count = x * y * z
        self._next_block = 0
        self._lock = threading.Lock()
        self._waiting: list[_Slot] = []
        self._spare: list[_Slot] = []
        self._fault: Fault | None = None

    def run(self) -> Outcome:
        """Run until done, at fault, or waiting; see `launching.Execution`."""
        if self._shape.has_waiting_loop:
            self._run_in_turn()
        else:
            self._run_all()
        if self._fault is not None:
            self._waiting.clear()
            self._next_block = self._block_count
            return Outcome(OutcomeKind.FAULT, self._fault)
        if self._waiting:
            return Outcome(OutcomeKind.YIELDED)
        return Outcome(OutcomeKind.DONE)

    # Kernels that wait for memory.

    def _run_in_turn(self) -> None:
        """Give each block that waits a turn, then begin others."""
        waiting, self._waiting = self._waiting, []
        for slot in waiting:
            slot.charge()
            self._run_one(slot)
        while (
            self._fault is None
            and self._next_block < self._block_count
            and len(self._waiting) < MOST_WAITING
        ):
            slot = self._spare.pop() if self._spare else self._new_slot()
            slot.aim(self._next_block, self._next_block + 1)
            self._next_block += 1
            self._run_one(slot)

    def _run_one(self, slot: _Slot) -> None:
        if self._fault is not None:
            return
        status = slot.run()
        if status is Status.YIELDED:
            slot.word[Field.IS_RESUMED] = 1
            self._waiting.append(slot)
        elif status is Status.DONE:
            self._spare.append(slot)
        else:
            self._fault = slot.fault()

    # Kernels that end by themselves.

    def _run_all(self) -> None:
        x, y, z = self._launch.block
        threads = 1
        if self._shape.is_order_free and self._block_count * x * y * z >= _FEW_THREADS:
            threads = min(os.cpu_count() or 1, self._block_count)
        if threads == 1:
            slot = self._new_slot()
            slot.aim(0, self._block_count)
            self._next_block = self._block_count
            if slot.run() is Status.FAULT:
                self._fault = slot.fault()
            return
        chunk = max(1, self._block_count // (threads * _CHUNKS_PER_THREAD))
        helpers = [_pool().submit(self._work, chunk) for _ in range(threads - 1)]
        self._work(chunk)
        for helper in helpers:
            helper.result()

    def _work(self, chunk: int) -> None:
        """Run chunks of blocks until there are none, or one is at fault."""
        slot = self._new_slot()
        while True:
            with self._lock:
                first = self._next_block
                if first >= self._block_count or self._fault is not None:
                    return
                self._next_block = end = min(first + chunk, self._block_count)
            slot.aim(first, end)
            if slot.run() is Status.FAULT:
                fault = slot.fault()
                with self._lock:
                    self._fault = self._fault or fault
                return

    def _new_slot(self) -> _Slot:
        return _Slot(self._function, self._shape, self._launch)


@cache
def _pool() -> ThreadPoolExecutor:
    """Helpers of the thread that runs a launch; they only ever run compiled code."""
    return ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="softgpu")


class _Slot:
    """A job with scratch memory for one block at a time."""

    def __init__(self, function: KernelFunction, shape: Shape, launch: Launch) -> None:
        self._function = function
        self._shape = shape
        self._launch = launch
        x, y, z = launch.block
        threads = x * y * z
        lanes = shape.lanes
        warps = -(-threads // lanes)
        storage = shape.program.kernel_storage
        dynamic_start = -(-storage.static_shared_bytes // 16) * 16
        shared_bytes = storage.static_shared_bytes
        if launch.dynamic_shared_bytes:
            shared_bytes = dynamic_start + launch.dynamic_shared_bytes
        local_bytes = warps * lanes * shape.program.slab_bytes
        caches = len(shape.program.instructions) * 16
        coordinates = 3 * MOST_THREADS * 4
        sizes = {
            Field.SHARED: shared_bytes,
            Field.LOCAL: local_bytes,
            Field.FRAMES: warps * shape.frame_bytes,
            Field.STATES: 4 * warps,
            Field.BARRIERS: 4 * NUMBERS * WORDS,
            Field.CACHES: caches,
            Field.PARAMETERS: len(launch.parameters),
            Field.SYMBOLS: 8 * len(launch.symbols),
            Field.THREADS: coordinates if lanes == 32 and not _is_rowwise(launch.block) else 0,
        }
        total = sum(size + _ALIGNMENT for size in sizes.values()) + _ALIGNMENT
        # Zeroed by ctypes: the caches must begin empty.
        self._scratch = (ctypes.c_ubyte * total)()
        self.word = (ctypes.c_uint64 * len(Field))()
        word = self.word
        address = ctypes.addressof(self._scratch)
        for field, size in sizes.items():
            address = -(-address // _ALIGNMENT) * _ALIGNMENT
            word[field] = address
            address += size
        word[Field.SHARED_BYTES] = shared_bytes
        word[Field.LOCAL_BYTES] = local_bytes
        word[Field.PARAMETER_BYTES] = len(launch.parameters)
        ctypes.memmove(word[Field.PARAMETERS], launch.parameters, len(launch.parameters))
        if launch.symbols:
            symbols = (ctypes.c_uint64 * len(launch.symbols))(*launch.symbols)
            ctypes.memmove(word[Field.SYMBOLS], symbols, ctypes.sizeof(symbols))
        if sizes[Field.THREADS]:
            self._write_coordinates(word[Field.THREADS])
        word[Field.ALLOCATIONS] = launch.allocations.address
        word[Field.ALLOCATION_COUNT] = launch.allocations.count
        word[Field.BUDGET] = launch.budget
        word[Field.WARPS] = warps
        in_last = threads - (warps - 1) * lanes
        word[Field.LAST_MASK] = (1 << in_last) - 1
        for axis, letter in enumerate("XYZ"):
            word[Field[f"NTID_{letter}"]] = launch.block[axis]
            word[Field[f"NCTAID_{letter}"]] = launch.grid[axis]

    def _write_coordinates(self, address: int) -> None:
        x, y, z = self._launch.block
        table = (ctypes.c_uint32 * (3 * MOST_THREADS)).from_address(address)
        for thread in range(x * y * z):
            for axis, coordinate in enumerate(_coordinates(thread, self._launch.block)):
                table[axis * MOST_THREADS + thread] = coordinate

    def aim(self, first: int, end: int) -> None:
        """Make these blocks the next to run."""
        self.word[Field.FIRST_BLOCK] = first
        self.word[Field.END_BLOCK] = end
        self.word[Field.IS_RESUMED] = 0

    def charge(self) -> None:
        """Take one turn of waiting off the budget; compiled code finds it spent if it is."""
        left = ctypes.c_int64(self.word[Field.BUDGET_LEFT]).value
        self.word[Field.BUDGET_LEFT] = max(0, left - YIELD_COST)

    def run(self) -> Status:
        return Status(self._function(ctypes.addressof(self.word)))

    def fault(self) -> Fault:
        """The report that compiled code left in the job."""
        word = self.word
        kind = FaultCode(word[Field.FAULT_KIND])
        position = word[Field.FAULT_POSITION]
        instruction = self._shape.program.instructions[position]
        lanes = self._shape.lanes
        first_thread = word[Field.FAULT_WARP] * lanes
        mask = word[Field.FAULT_LANES]
        threads = tuple(
            _coordinates(first_thread + lane, self._launch.block)
            for lane in range(lanes)
            if mask >> lane & 1
        )
        found = Fault(
            kind=FaultKind[kind.name],
            kernel=self._shape.program.kernel.name,
            line=instruction.span.line,
            block=_coordinates(word[Field.FIRST_BLOCK], self._launch.grid),
            threads=threads,
        )
        if kind not in (FaultCode.ILLEGAL_ADDRESS, FaultCode.MISALIGNED):
            return found
        return Fault(
            kind=found.kind,
            kernel=found.kernel,
            line=found.line,
            block=found.block,
            threads=threads,
            address=word[Field.FAULT_ADDRESS],
            size_bytes=instruction.type.size * instruction.vector_size,
            is_write=instruction.opcode in ("st", *ATOMICS),
            space=instruction.space,
        )


def _coordinates(index: int, extent: Dim3) -> Dim3:
    """x, y, z of a linear index."""
    x, y, _ = extent
    return index % x, index // x % y, index // (x * y)


def _is_rowwise(block: Dim3) -> bool:
    return block[0] % 32 == 0 or block[1] == block[2] == 1
