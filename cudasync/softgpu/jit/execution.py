"""Cellar, jit. A launch under way: which blocks run where, and which fault is told.

Blocks of a launch run on up to as many threads as there are processors, each with a slot of its
own, taking the next few blocks in turn. A kernel with a loop that waits for memory runs on one
thread, block after block; a block that only waits is set aside with its slot, and gets a turn
whenever `run` is called again. A kernel whose result could depend on the order of blocks through
its atomics runs on one thread, too: a launch gives the same bits every time. So does one that is
recorded, since a record says what came before what.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

from cudasync.softgpu.jit.job import Status
from cudasync.softgpu.launching import Outcome, OutcomeKind

if TYPE_CHECKING:
    from cudasync.softgpu.jit.slots import Fit, Slot
    from cudasync.softgpu.launching import Fault, Launch

# Blocks that may be set aside at a time; further ones begin when one of these is done.
MOST_WAITING = 1024
# Launches of fewer threads than this are not worth a second processor.
_FEW_THREADS = 1 << 15
_CHUNKS_PER_THREAD = 8
# The processors there are: asking costs more than a small launch.
_PROCESSORS = os.cpu_count() or 1


class JitExecution:
    """One launch of one kernel."""

    def __init__(self, fit: Fit, launch: Launch) -> None:
        self._fit = fit
        self._launch = launch
        x, y, z = launch.grid
        self._block_count = x * y * z
        self._next_block = 0
        self._lock = threading.Lock()
        self._waiting: list[Slot] = []
        # The fault of the earliest block that has one, with the block's index.
        self._fault: tuple[int, Fault] | None = None

    def run(self) -> Outcome:
        """Run until done, at fault, or waiting; see `launching.Execution`."""
        if self._fit.has_waiting_loop:
            self._run_in_turn()
        else:
            self._run_all()
        if self._fault is not None:
            self._waiting.clear()
            self._next_block = self._block_count
            return Outcome(OutcomeKind.FAULT, self._fault[1])
        if self._waiting:
            return Outcome(OutcomeKind.YIELDED)
        return Outcome(OutcomeKind.DONE)

    # Kernels that wait for memory.

    def _run_in_turn(self) -> None:
        """Give each block that waits a turn, then begin others."""
        waiting, self._waiting = self._waiting, []
        for slot in waiting:
            slot.resume()
            self._run_one(slot)
        while (
            self._fault is None
            and self._next_block < self._block_count
            and len(self._waiting) < MOST_WAITING
        ):
            slot = self._fit.take(self._launch)
            slot.aim(self._next_block, self._next_block + 1)
            self._next_block += 1
            self._run_one(slot)

    def _run_one(self, slot: Slot) -> None:
        if self._fault is not None:
            return
        status = slot.run()
        if status is Status.YIELDED:
            self._waiting.append(slot)
        elif status is Status.DONE:
            self._fit.give(slot)
        else:
            self._fault = slot.fault(self._launch)

    # Kernels that end by themselves.

    def _run_all(self) -> None:
        threads = 1
        fit = self._fit
        is_free = fit.is_order_free and self._launch.recording is None
        if is_free and self._block_count * fit.thread_count >= _FEW_THREADS:
            threads = min(_PROCESSORS, self._block_count)
        if threads == 1:
            self._work(self._block_count)
            return
        chunk = max(1, self._block_count // (threads * _CHUNKS_PER_THREAD))
        helpers = [_pool().submit(self._work, chunk) for _ in range(threads - 1)]
        self._work(chunk)
        for helper in helpers:
            helper.result()

    def _work(self, chunk: int) -> None:
        """Run chunks of blocks until there are none, or one is at fault.

        Chunks are taken in order, and those under way are finished: so the fault of the earliest
        block is found, whichever thread was faster.
        """
        slot = self._fit.take(self._launch)
        while True:
            with self._lock:
                first = self._next_block
                if first >= self._block_count or self._fault is not None:
                    break
                self._next_block = end = min(first + chunk, self._block_count)
            slot.aim(first, end)
            if slot.run() is Status.FAULT:
                self._note(slot.fault(self._launch))
                break
        self._fit.give(slot)

    def _note(self, fault: tuple[int, Fault]) -> None:
        """Keep the fault of the earliest block."""
        with self._lock:
            if self._fault is None or fault[0] < self._fault[0]:
                self._fault = fault


@cache
def _pool() -> ThreadPoolExecutor:
    """Helpers of the thread that runs a launch; they only ever run compiled code."""
    return ThreadPoolExecutor(max_workers=_PROCESSORS, thread_name_prefix="softgpu")
