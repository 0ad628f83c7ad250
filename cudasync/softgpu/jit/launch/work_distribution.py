"""Cellar, jit. Distributes the blocks of a launch over threads, and selects the reported fault.

Blocks run on up to as many threads as there are processors. Each thread has a slot of its own and
takes the next few blocks in turn. A kernel with a loop that waits for memory runs on one thread,
block after block. A block that only waits is set aside with its slot. It gets a turn whenever other
blocks have moved, or `run` is called again. If atomics could make a kernel's result depend on the
order of blocks, it also runs on one thread: a launch gives the same bits every time. So does a
recorded kernel whose record states an order.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from cudasync.locks import Lock
from cudasync.softgpu.interface.launch import Fault, FaultKind, Outcome, OutcomeKind
from cudasync.softgpu.jit.kernel_abi.job_record import Status
from cudasync.softgpu.jit.launch.worker_threads import PROCESSORS, Job

if TYPE_CHECKING:
    from cudasync.softgpu.interface.launch import Launch
    from cudasync.softgpu.jit.launch.block_slots import Fit, Slot

# The number of blocks that may be set aside at once; further blocks begin when one of them is done.
MOST_WAITING = 1024
# Turns of all blocks before the rest of the program gets a turn. IDLE_COST is the budget that a
# block pays for a turn in which nothing moves: trips that take as long as the executor then sleeps.
_TURNS = 64
IDLE_COST = 2**14
# Launches of fewer threads than this do not use a second processor, unless their first chunk
# takes long.
_FEW_THREADS = 1 << 15
_LONG_S = 100e-6
_CHUNKS_PER_THREAD = 8
# The size of the first chunk, in blocks. Chunks grow while they take less time than _CHUNK_S.
_FIRST_CHUNK = 1024
_CHUNK_S = 20e-3
# Chunks of short launches take about this long, if as many blocks are left for each other thread.
# A helper that wakes up meanwhile finds the GIL free, and few chunks cost little Python.
_SHORT_S = 250e-6
_DONE = Outcome(OutcomeKind.DONE)


class JitExecution:
    """One launch of one kernel.

    An interrupt may leave `run` anywhere; a second call goes on. So a slot is in `_waiting` or
    `_working` before it runs, and is removed when its outcome is known: a job that runs again after
    it is done does nothing. A single store into one of these assigns blocks to a slot;
    `_next_block` only follows.
    """

    def __init__(self, fit: Fit, launch: Launch) -> None:
        self._fit = fit
        self._launch = launch
        x, y, z = launch.grid
        self._block_count = x * y * z
        self._next_block = 0
        self._lock = Lock()
        self._waiting: list[Slot] = []
        # The slot of the launching thread with its blocks, while it runs them or after an
        # interrupt.
        self._working: dict[Slot, tuple[int, int]] = {}
        # No interrupt reaches helpers: they finish each job that they begin.
        self._helpers: list[Job] = []
        # All slots of this launch, on any thread; whether the launch must end.
        self._slots: list[Slot] = []
        self._is_stopped = False
        # The number of helpers not called yet.
        self._unasked = 0
        # The fault of the earliest faulty block, with the block's index.
        self._fault: tuple[int, Fault] | None = None
        self._spent = 0

    def run(self) -> Outcome:
        """Run until done, at fault, or waiting; see `launch.Execution`."""
        has_moved = False
        if self._fit.text.has_waiting_loop:
            has_moved = self._run_in_turns()
        else:
            self._run_all()
        if self._fault is None and self._is_stopped and self._waiting:
            # The block waits at a place where it asks for no budget.
            self._fault = (self._block_count, self._timeout())
        if self._fault is not None:
            self._waiting.clear()
            self._next_block = self._block_count
            fault = self._fault[1]
            if self._is_stopped and fault.kind is FaultKind.TIMEOUT:
                fault = replace(fault, kind=FaultKind.STOPPED)
            return Outcome(OutcomeKind.FAULT, fault)
        if self._waiting:
            return Outcome(OutcomeKind.YIELDED, has_moved=has_moved)
        return _DONE

    def stop(self) -> None:
        """Make the launch end soon, wherever it is; see `launch.Execution`."""
        # The flag first: a slot taken later stops itself, and one given back is not used again.
        self._is_stopped = True
        for slot in list(self._slots):
            slot.stop()

    def _take(self) -> Slot:
        slot = self._fit.take(self._launch)
        self._slots.append(slot)
        if self._is_stopped:
            slot.stop()
        return slot

    def _give(self, slot: Slot) -> None:
        self._slots.remove(slot)
        if not self._is_stopped:
            self._fit.give(slot)

    def _interrupted(self, slot: Slot) -> None:
        if slot.is_stopped:
            # The slot noticed an interrupt but did not end; neither will the slots beside it.
            self.stop()

    # Kernels that wait for memory.

    def _run_in_turns(self) -> bool:
        """Give blocks turns while any of them moves; return whether the last turn moved one."""
        has_moved = False
        for _ in range(_TURNS):
            has_moved = self._run_in_turn()
            if not has_moved or not self._waiting or self._fault is not None:
                break
        return has_moved

    def _run_in_turn(self) -> bool:
        """Give each waiting block a turn, then begin others; return whether any moved."""
        has_moved = False
        waiting = self._waiting
        if waiting:
            # An interrupt may have come between the start of the last block and its store below.
            self._next_block = max(self._next_block, waiting[-1].aimed[1])
        for slot in list(waiting):
            if self._fault is None:
                has_moved = self._run_one(slot) or has_moved
        while (
            self._fault is None
            and self._next_block < self._block_count
            and len(waiting) < MOST_WAITING
        ):
            slot = self._take()
            block = self._next_block
            slot.aim(block, block + 1)
            waiting.append(slot)
            self._next_block = block + 1
            self._run_one(slot)
            has_moved = True
        self._check_spent(self._spent + sum(slot.spent_under_way for slot in waiting))
        if not has_moved:
            for slot in waiting:
                slot.charge(IDLE_COST)
        return has_moved

    def _run_one(self, slot: Slot) -> bool:
        """Give a block in `_waiting` its turn; return whether it moved."""
        if slot.is_stopped:
            slot.charge(self._launch.budget)
        try:
            status = slot.run()
        except BaseException:
            self._interrupted(slot)
            raise
        if status is Status.YIELDED:
            return slot.has_moved
        if status is Status.FAULT:
            self._fault = slot.fault(self._launch)
        self._waiting.remove(slot)
        self._account(slot)
        self._give(slot)
        return True

    def _account(self, slot: Slot) -> None:
        """Add the cost of a finished slot; all slots together may have spent too much.

        It does not matter which thread finds that out: the sum is the same.
        """
        self._spent += slot.spent
        self._check_spent(self._spent)

    def _check_spent(self, spent: int) -> None:
        if spent > self._launch.total_budget and self._fault is None:
            self._fault = (self._block_count, self._timeout())

    def _timeout(self) -> Fault:
        kernel = self._fit.outline
        return Fault(FaultKind.TIMEOUT, kernel.name, kernel.line, (0, 0, 0), ())

    # Kernels that end by themselves.

    def _run_all(self) -> None:
        self._join()
        for slot, blocks in list(self._working.items()):
            self._work_on(slot, *blocks)
        fit = self._fit
        recording = self._launch.recording
        is_recorded = recording is not None and recording.keeps_order
        must_keep_order = not fit.text.traits.is_order_free or is_recorded
        if self._block_count == 1 or must_keep_order:
            self._work_alone()
            return
        threads = min(PROCESSORS, self._block_count)
        most = max(1, self._block_count // (threads * _CHUNKS_PER_THREAD))
        self._unasked = threads - 1
        if self._block_count * fit.thread_count >= _FEW_THREADS:
            self._ask(most)
        self._work(most)
        self._join()

    def _ask(self, most: int) -> None:
        """Call helpers on the other processors."""
        while self._unasked:
            self._unasked -= 1
            job = Job(partial(self._work, most, is_helper=True))
            self._helpers.append(job)
            job.ask()

    def _join(self) -> None:
        """Wait for the helpers that have begun a job."""
        while self._helpers:
            self._helpers[-1].join()
            self._helpers.pop()

    def _work(self, most: int, *, is_helper: bool = False) -> None:
        """Run chunks of up to `most` blocks until none is left, or a block is at fault.

        Chunks are taken in order, and chunks under way are finished. So the fault of the earliest
        block is found, whichever thread was faster. An interrupt waits at most one chunk.
        """
        slot = self._take()
        recording = self._launch.recording
        if recording is not None and recording.count:
            slot.record_in(recording.table())
        chunk = min(most, _FIRST_CHUNK)
        # The time of a block: in the slowest chunk of the last launch, and of this launch.
        block_s, slot.block_s = slot.block_s, 0.0
        while True:
            short = int(_SHORT_S / block_s) if block_s else 0
            with self._lock:
                # An interrupt may have come between the two stores below.
                first = max([self._next_block, *(end for _, end in self._working.values())])
                left = self._block_count - first
                if left <= 0 or self._fault is not None:
                    break
                end = first + min(max(chunk, min(short, left // PROCESSORS)), left)
                if not is_helper:
                    self._working[slot] = (first, end)
                self._next_block = end
            slot.aim(first, end)
            begun_s = perf_counter()
            if self._run_chunk(slot):
                break
            took_s = perf_counter() - begun_s
            slot.block_s = max(slot.block_s, took_s / (end - first))
            block_s = max(block_s, slot.block_s)
            if took_s < _CHUNK_S:
                chunk = min(most, 2 * chunk)
            if not is_helper and took_s > _LONG_S and end < self._block_count:
                self._ask(most)
        with self._lock:
            self._working.pop(slot, None)
            self._account(slot)
        self._give(slot)

    def _work_alone(self) -> None:
        """Like `_work`, without helpers."""
        slot = self._take()
        count = self._block_count
        chunk = min(count // _CHUNKS_PER_THREAD or 1, _FIRST_CHUNK)
        while self._next_block < count and self._fault is None:
            first = self._next_block
            end = min(first + chunk, count)
            # No interrupt can come between these two stores.
            self._working[slot] = (first, end)
            self._next_block = end
            slot.aim(first, end)
            if self._run_chunk(slot):
                break
        self._working.pop(slot, None)
        self._account(slot)
        self._give(slot)

    def _work_on(self, slot: Slot, first: int, end: int) -> None:
        """Finish the blocks that an interrupted thread had begun, or was about to begin."""
        if slot.aimed != (first, end):
            slot.aim(first, end)
        self._run_chunk(slot)
        self._working.pop(slot, None)
        self._account(slot)

    def _run_chunk(self, slot: Slot) -> bool:
        """Run the blocks that `slot` aims at; return whether one is at fault."""
        try:
            if slot.run() is not Status.FAULT:
                return False
        except BaseException:
            self._interrupted(slot)
            raise
        fault = slot.fault(self._launch)
        with self._lock:
            # Keep the fault of the earliest block.
            if self._fault is None or fault[0] < self._fault[0]:
                self._fault = fault
        return True
