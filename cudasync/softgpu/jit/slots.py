"""Cellar, jit. A slot: a job and the scratch memory of one block, which threads run blocks in.

Slots are made for a kernel, a variant and a shape of block, and used again by later launches of
the same: what does not change from launch to launch is filled in once.
"""

from __future__ import annotations

import ctypes
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.barriers import NUMBERS, WORDS
from cudasync.softgpu.jit.job import FaultCode, Field, Status
from cudasync.softgpu.jit.memory import ATOMICS
from cudasync.softgpu.jit.special import MOST_THREADS
from cudasync.softgpu.launching import Dim3, Fault, FaultKind, Launch

if TYPE_CHECKING:
    from cudasync.softgpu.jit.codegen import KernelFunction
    from cudasync.softgpu.jit.lowering import Variant
    from cudasync.softgpu.jit.program import Program

# What one turn of a block that only waits costs of its budget.
YIELD_COST = 2**14
# Of scratch that is kept for later launches: more is given back.
_MOST_KEPT_BYTES = 1 << 22
_MOST_IDLE = 8
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Fit:
    """A compiled kernel fitted to a shape of block and an amount of dynamic shared memory."""

    function: KernelFunction
    # What has to live as long as the function.
    owner: object
    program: Program
    variant: Variant
    frame_bytes: int
    has_waiting_loop: bool
    is_order_free: bool
    block: Dim3
    dynamic_shared_bytes: int
    idle: deque[Slot] = field(default_factory=deque)

    @property
    def thread_count(self) -> int:
        x, y, z = self.block
        return x * y * z

    def take(self, launch: Launch) -> Slot:
        """A slot for this launch, used before or new."""
        try:
            slot = self.idle.pop()
        except IndexError:
            slot = Slot(self)
        slot.load(launch)
        return slot

    def give(self, slot: Slot) -> None:
        """A slot that nobody uses any more."""
        if slot.size_bytes <= _MOST_KEPT_BYTES and len(self.idle) < _MOST_IDLE:
            self.idle.append(slot)


class Slot:
    """A job with scratch memory for one block at a time."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        lanes = fit.variant.lanes
        threads = fit.thread_count
        warps = -(-threads // lanes)
        storage = fit.program.kernel_storage
        shared_bytes = storage.static_shared_bytes
        if fit.dynamic_shared_bytes:
            shared_bytes = -(-shared_bytes // 16) * 16 + fit.dynamic_shared_bytes
        local_bytes = warps * lanes * fit.program.slab_bytes
        self._parameter_bytes = storage.parameter_bytes
        self._cache_bytes = len(fit.program.instructions) * 16
        sizes = {
            Field.SHARED: shared_bytes,
            Field.LOCAL: local_bytes,
            Field.FRAMES: warps * fit.frame_bytes,
            Field.STATES: 4 * warps,
            Field.BARRIERS: 4 * NUMBERS * WORDS,
            Field.CACHES: self._cache_bytes,
            Field.PARAMETERS: storage.parameter_bytes,
            Field.SYMBOLS: 8 * len(storage.symbols),
            Field.THREADS: 0 if fit.variant.is_rowwise else 3 * MOST_THREADS * 4,
        }
        self.size_bytes = sum(size + _ALIGNMENT for size in sizes.values()) + _ALIGNMENT
        self._scratch = (ctypes.c_ubyte * self.size_bytes)()
        self.word = word = (ctypes.c_uint64 * len(Field))()
        self._job = ctypes.addressof(word)
        address = ctypes.addressof(self._scratch)
        for place, size in sizes.items():
            address = -(-address // _ALIGNMENT) * _ALIGNMENT
            word[place] = address
            address += size
        word[Field.SHARED_BYTES] = shared_bytes
        word[Field.LOCAL_BYTES] = local_bytes
        word[Field.PARAMETER_BYTES] = storage.parameter_bytes
        if sizes[Field.THREADS]:
            self._write_coordinates(word[Field.THREADS])
        word[Field.WARPS] = warps
        word[Field.LAST_MASK] = (1 << threads - (warps - 1) * lanes) - 1
        word[Field.NTID_X], word[Field.NTID_Y], word[Field.NTID_Z] = fit.block

    def load(self, launch: Launch) -> None:
        """Fill in what is a launch's own."""
        word = self.word
        ctypes.memmove(word[Field.PARAMETERS], launch.parameters, self._parameter_bytes)
        if launch.symbols:
            symbols = (ctypes.c_uint64 * len(launch.symbols))(*launch.symbols)
            ctypes.memmove(word[Field.SYMBOLS], symbols, ctypes.sizeof(symbols))
        # Ranges of an earlier launch may have been freed since.
        ctypes.memset(word[Field.CACHES], 0, self._cache_bytes)
        word[Field.ALLOCATIONS] = launch.allocations.address
        word[Field.ALLOCATION_COUNT] = launch.allocations.count
        recording = launch.recording
        word[Field.RECORDING] = recording.address if recording is not None else 0
        word[Field.RECORDING_COUNT] = recording.count if recording is not None else 0
        word[Field.BUDGET] = launch.budget
        word[Field.NCTAID_X], word[Field.NCTAID_Y], word[Field.NCTAID_Z] = launch.grid

    def _write_coordinates(self, address: int) -> None:
        table = (ctypes.c_uint32 * (3 * MOST_THREADS)).from_address(address)
        for thread in range(self._fit.thread_count):
            for axis, coordinate in enumerate(coordinates(thread, self._fit.block)):
                table[axis * MOST_THREADS + thread] = coordinate

    def aim(self, first: int, end: int) -> None:
        """Make these blocks the next to run."""
        self.word[Field.FIRST_BLOCK] = first
        self.word[Field.END_BLOCK] = end
        self.word[Field.IS_RESUMED] = 0

    def resume(self) -> None:
        """Let the block that waits have another turn, and take that off its budget.

        Compiled code finds out when nothing is left.
        """
        left = ctypes.c_int64(self.word[Field.BUDGET_LEFT]).value
        self.word[Field.BUDGET_LEFT] = max(0, left - YIELD_COST)
        self.word[Field.IS_RESUMED] = 1

    def run(self) -> Status:
        """Run the blocks aimed at, without the GIL."""
        return Status(self._fit.function(self._job))

    def fault(self, launch: Launch) -> tuple[int, Fault]:
        """The report that compiled code left in the job, and the index of its block."""
        word, program = self.word, self._fit.program
        kind = FaultCode(word[Field.FAULT_KIND])
        instruction = program.instructions[word[Field.FAULT_POSITION]]
        lanes = self._fit.variant.lanes
        first_thread = word[Field.FAULT_WARP] * lanes
        mask = word[Field.FAULT_LANES]
        threads = tuple(
            coordinates(first_thread + lane, launch.block)
            for lane in range(lanes)
            if mask >> lane & 1
        )
        block = word[Field.FIRST_BLOCK]
        # A call that leaves the stack is no access: it has neither a size nor a type.
        is_access = kind in (FaultCode.ILLEGAL_ADDRESS, FaultCode.MISALIGNED) and bool(
            instruction.types
        )
        fault = Fault(
            kind=FaultKind[kind.name],
            kernel=program.kernel.name,
            line=instruction.span.line,
            block=coordinates(block, launch.grid),
            threads=threads,
            address=word[Field.FAULT_ADDRESS] if is_access else 0,
            size_bytes=instruction.type.size * instruction.vector_size if is_access else 0,
            is_write=is_access and instruction.opcode in ("st", *ATOMICS),
            space=instruction.space if is_access else None,
        )
        return block, fault


def coordinates(index: int, extent: Dim3) -> Dim3:
    """x, y, z of a linear index."""
    x, y, _ = extent
    return index % x, index // x % y, index // (x * y)
