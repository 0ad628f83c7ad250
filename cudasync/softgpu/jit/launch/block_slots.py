"""Cellar, jit. Slots: a slot is a job and the scratch memory in which a thread runs one block.

A slot belongs to a kernel, a variant and a block shape. Later launches of the same kind use it
again, so that values which do not change between launches are filled in once.
"""

from __future__ import annotations

import ctypes
from array import array
from collections import deque
from dataclasses import dataclass, field
from threading import get_ident, main_thread
from typing import TYPE_CHECKING

from cudasync.ptx.types import StateSpace
from cudasync.softgpu.interface.initialisation_windows import NO_BLOCK, Window
from cudasync.softgpu.interface.launch import Dim3, Fault, FaultKind, Launch
from cudasync.softgpu.interface.poison import poison
from cudasync.softgpu.jit.kernel_abi.access_descriptors import Cache
from cudasync.softgpu.jit.kernel_abi.job_record import (
    BARRIER_WORDS,
    BARRIERS,
    GRAIN,
    MOST_THREADS,
    FaultCode,
    Field,
    Status,
    Where,
)
from cudasync.softgpu.jit.launch.fault_attribution import blamed

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.interface.access_recording import Table
    from cudasync.softgpu.jit.kernel_abi.kernel_text import KernelFunction, KernelText
    from cudasync.softgpu.jit.kernel_abi.specialisation import Variant
    from cudasync.softgpu.jit.launch.kernel_outline import Outline
    from cudasync.softgpu.jit.transforms.program import Program

# The rounds that a block makes in one turn, while its warps move.
ROUNDS = 32
# Scratch that is kept for later launches, at most: a larger slot is freed.
_MOST_KEPT_BYTES = 1 << 22
_MOST_IDLE = 8
_ALIGNMENT = 64
# Plain integers: indexing with an enumeration member costs three times as much.
_ALLOCATIONS, _ALLOCATION_COUNT = int(Field.ALLOCATIONS), int(Field.ALLOCATION_COUNT)
_RACES = int(Field.RACES)
_RECORDING, _RECORDING_COUNT = int(Field.RECORDING), int(Field.RECORDING_COUNT)
_WINDOWS, _CONVERGENCE = int(Field.WINDOWS), int(Field.CONVERGENCE)
_WRITTEN_BLOCK = int(Field.WRITTEN_BLOCK)
_BUDGET, _TOTAL, _SPENT = int(Field.BUDGET), int(Field.TOTAL), int(Field.SPENT)
_WORKSPACE, _NONTEMPORAL = int(Field.WORKSPACE), int(Field.NONTEMPORAL)
_NCTAID_X, _NCTAID_Y, _NCTAID_Z = map(int, (Field.NCTAID_X, Field.NCTAID_Y, Field.NCTAID_Z))
_FIRST_BLOCK, _END_BLOCK = int(Field.FIRST_BLOCK), int(Field.END_BLOCK)
_IS_RESUMED, _ROUNDS = int(Field.IS_RESUMED), int(Field.ROUNDS)
_HAS_MOVED, _HAD_MOVED = int(Field.HAS_MOVED), int(Field.HAD_MOVED)
_LISTENS, _RAISED_TYPE = int(Field.LISTENS), int(Field.RAISED_TYPE)
_RAISED_TRACEBACK, _GRAIN = int(Field.RAISED_TRACEBACK), int(Field.GRAIN)
_STATUS = tuple(Status)
# The thread to which Python delivers signals.
_MAIN = main_thread().ident
_restore = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyErr_Restore", ctypes.pythonapi)
)


@dataclass(frozen=True, slots=True)
class Fit:
    """A compiled kernel fitted to a shape of block and an amount of dynamic shared memory."""

    function: KernelFunction
    # An object that must live as long as the function.
    owner: object
    outline: Outline
    # Returns the instructions, for the report of a fault.
    find_program: Callable[[], Program]
    variant: Variant
    text: KernelText
    block: Dim3
    dynamic_shared_bytes: int
    idle: deque[Slot] = field(default_factory=deque)

    @property
    def thread_count(self) -> int:
        x, y, z = self.block
        return x * y * z

    def take(self, launch: Launch) -> Slot:
        """A slot for this launch, idle or new."""
        try:
            slot = self.idle.pop()
        except IndexError:
            slot = Slot(self)
        slot.load(launch)
        return slot

    def give(self, slot: Slot) -> None:
        """Take back a slot that is no longer in use."""
        if slot.size_bytes <= _MOST_KEPT_BYTES and len(self.idle) < _MOST_IDLE:
            self.idle.append(slot)


class Slot:
    """A job with scratch memory for one block at a time."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        # The amount charged to the waiting block for idle turns.
        self._charged = 0
        # The blocks at which `aim` last pointed in this launch, set after all its other writes.
        self.aimed = (0, 0)
        # The slot's own table of first accesses, if the launch is recorded on several threads.
        self._table: Table | None = None
        # The time of a block in the slowest chunk of the last timed launch; 0 before.
        self.block_s = 0.0
        lanes = fit.variant.lanes
        threads = fit.thread_count
        warps = -(-threads // lanes)
        outline = fit.outline
        shared_bytes = outline.static_shared_bytes
        if fit.dynamic_shared_bytes:
            shared_bytes = -(-shared_bytes // 16) * 16 + fit.dynamic_shared_bytes
        shared_bytes += outline.reserved_shared_bytes
        local_bytes = warps * lanes * outline.slab.stride
        self._parameter_bytes = outline.parameter_bytes
        cache_bytes = outline.instructions * 8 * len(Cache)
        sizes = {
            Field.SHARED: shared_bytes,
            Field.LOCAL: local_bytes,
            Field.FRAMES: warps * fit.text.frame_bytes,
            Field.STATES: 4 * warps,
            Field.BARRIERS: 4 * BARRIERS * BARRIER_WORDS,
            Field.CACHES: cache_bytes,
            Field.PARAMETERS: outline.parameter_bytes,
            Field.SYMBOLS: 8 * outline.symbols,
            Field.THREADS: 0 if fit.variant.is_rowwise else 3 * MOST_THREADS * 4,
        }
        alignment = max(_ALIGNMENT, outline.alignment)
        self.size_bytes = sum(size + alignment for size in sizes.values()) + alignment
        scratch = bytearray(self.size_bytes)
        # Keeps the memory alive, and in place.
        self._scratch = ctypes.c_ubyte.from_buffer(scratch)
        self.word = word = array("Q", bytes(8 * len(Field)))
        self._job = word.buffer_info()[0]
        start = address = ctypes.addressof(self._scratch)
        parts = {}
        for place, size in sizes.items():
            address = -(-address // alignment) * alignment
            word[place] = address
            parts[place] = memoryview(scratch)[address - start : address - start + size]
            address += size
        # Local memory is not poisoned again: only the first warp finds poison there.
        poison(word[Field.LOCAL], local_bytes)
        self._parameters = parts[Field.PARAMETERS]
        self._symbols = parts[Field.SYMBOLS].cast("Q")
        self._caches = parts[Field.CACHES]
        self._no_ranges = bytes(cache_bytes)
        word[Field.SHARED_BYTES] = shared_bytes
        word[Field.LOCAL_BYTES] = local_bytes
        word[Field.PARAMETER_BYTES] = outline.parameter_bytes
        if sizes[Field.THREADS]:
            self._write_coordinates(word[Field.THREADS])
        word[Field.WARPS] = warps
        word[Field.LAST_MASK] = (1 << threads - (warps - 1) * lanes) - 1
        word[Field.NTID_X], word[Field.NTID_Y], word[Field.NTID_Z] = fit.block

    def load(self, launch: Launch) -> None:
        """Fill in the values of this launch."""
        words = self.word
        self._parameters[:] = launch.parameters[: self._parameter_bytes]
        if launch.symbols:
            self._symbols[:] = array("Q", launch.symbols)
        # Ranges of an earlier launch may have been freed since.
        self._caches[:] = self._no_ranges
        allocations, recording = launch.allocations, launch.recording
        words[_ALLOCATIONS] = allocations.address
        words[_ALLOCATION_COUNT] = allocations.count
        words[_RECORDING] = recording.address if recording is not None else 0
        words[_RECORDING_COUNT] = recording.count if recording is not None else 0
        self._table = None
        races = recording.races if recording is not None else None
        words[_RACES] = 0
        if races is not None:
            shared = words[Field.SHARED], words[Field.SHARED_BYTES]
            words[_RACES] = races.state_of(self, *shared, words[Field.WARPS])
        windows = recording.windows if recording is not None else None
        words[_WINDOWS] = 0 if windows is None else windows.state_of(self._window())
        words[_WRITTEN_BLOCK] = NO_BLOCK
        convergence = recording.convergence if recording is not None else None
        words[_CONVERGENCE] = 0
        if convergence is not None:
            words[_CONVERGENCE] = convergence.state_of(self, self._fit.thread_count)
        self.aimed = (0, 0)
        words[_BUDGET] = launch.budget
        words[_GRAIN] = min(launch.budget, GRAIN)
        words[_TOTAL] = launch.total_budget
        words[_SPENT] = 0
        words[_WORKSPACE] = launch.workspace
        nontemporal = self._fit.text.traits.nontemporal
        words[_NONTEMPORAL] = nontemporal is not None and nontemporal.pays(launch)
        words[_NCTAID_X], words[_NCTAID_Y], words[_NCTAID_Z] = launch.grid

    def record_in(self, table: Table) -> None:
        """Note the first accesses of this launch in a table of the slot's own."""
        self._table = table
        self.word[_RECORDING] = table.address

    def _window(self) -> Window:
        """The places of shared and local memory."""
        words, outline = self.word, self._fit.outline
        shared, local = words[Field.SHARED], words[Field.LOCAL]
        sizes = words[Field.SHARED_BYTES], words[Field.LOCAL_BYTES]
        reserved = outline.reserved_shared_bytes
        return Window(shared, sizes[0], local, sizes[1], outline.slab.stride, reserved)

    def _write_coordinates(self, address: int) -> None:
        table = (ctypes.c_uint32 * (3 * MOST_THREADS)).from_address(address)
        for thread in range(self._fit.thread_count):
            for axis, coordinate in enumerate(coordinates(thread, self._fit.block)):
                table[axis * MOST_THREADS + thread] = coordinate

    def aim(self, first: int, end: int) -> None:
        """Make these blocks the next to run."""
        words = self.word
        words[_FIRST_BLOCK] = first
        words[_END_BLOCK] = end
        words[_IS_RESUMED] = 0
        self._charged = 0
        if self._table is not None:
            self._table.begin(first)
        self.aimed = (first, end)

    def charge(self, cost: int) -> None:
        """Reduce the budget of a block that waits.

        Compiled code notices when nothing is left.
        """
        self.word[Field.BUDGET_LEFT], self.word[Field.RESERVE] = 0, max(0, self._left - cost)
        self._charged += cost

    def stop(self) -> None:
        """Make the blocks time out at their next grain. May be called at any time."""
        self.word[_GRAIN] = self.word[_TOTAL] = 0

    @property
    def is_stopped(self) -> bool:
        """Whether no more budget is granted."""
        return not self.word[_GRAIN]

    @property
    def _left(self) -> int:
        """The rest of the budget of a block that waits."""
        own: int = ctypes.c_int64(self.word[Field.BUDGET_LEFT]).value
        return own + self.word[Field.RESERVE]

    def run(self) -> Status:
        """Run the blocks of the last `aim`, or the rest of them, without the GIL."""
        words = self.word
        words[_ROUNDS] = ROUNDS
        words[_HAS_MOVED] = words[_HAD_MOVED] = 0
        words[_LISTENS] = get_ident() == _MAIN
        status = _STATUS[self._fit.function(self._job)]
        if words[_RAISED_TYPE]:
            raised = words[_RAISED_TYPE : _RAISED_TRACEBACK + 1]
            words[_RAISED_TYPE] = 0
            # Raises the exception of a signal handler.
            _restore(*raised)
        return status

    @property
    def spent(self) -> int:
        """The cost of the blocks that this slot has finished in this launch."""
        return self.word[Field.SPENT]

    @property
    def spent_under_way(self) -> int:
        """The cost so far of a block that waits, without the charges for idle turns."""
        return self.word[Field.BUDGET] - self._left - self._charged

    @property
    def has_moved(self) -> bool:
        """Whether a block that waits has moved in its last turn."""
        return bool(self.word[Field.HAD_MOVED])

    def fault(self, launch: Launch) -> tuple[int, Fault]:
        """The report that compiled code wrote into the job, and the index of its block."""
        word, program = self.word, self._fit.find_program()
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
        access = window = None
        if kind in (FaultCode.ILLEGAL_ADDRESS, FaultCode.MISALIGNED):
            is_in_window = word[Field.FAULT_WHERE] == Where.WINDOW
            access = blamed(instruction, is_in_window=is_in_window)
        if access is not None and access.space is StateSpace.SHARED:
            window = (word[Field.SHARED], word[Field.SHARED_BYTES])
        elif access is not None and access.space is StateSpace.LOCAL:
            # For local memory, checks and reports use the offset.
            window = (0, program.slab_bytes)
        fault = Fault(
            kind=FaultKind[kind.name],
            kernel=program.kernel.name,
            line=instruction.span.line,
            block=coordinates(block, launch.grid),
            threads=threads,
            address=word[Field.FAULT_ADDRESS] if access else 0,
            size_bytes=access.size_bytes if access else 0,
            is_write=access is not None and access.is_write,
            space=access.space if access else None,
            window=window,
        )
        return block, fault


def coordinates(index: int, extent: Dim3) -> Dim3:
    """x, y, z of a linear index."""
    x, y, _ = extent
    return index % x, index // x % y, index // (x * y)
