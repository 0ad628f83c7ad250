"""Cellar. One block: its memory, its threads, and the order of their turns.

Threads run one after another, in order, each until it stops. When no thread can go on, warps whose
lanes have all reached a warp-wide instruction execute it, and complete barriers open. If neither
happens, and no thread waits in a polite loop, the barrier can never complete.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import Enum, unique
from typing import TYPE_CHECKING

from cudasync.ptx.types import StateSpace
from cudasync.softgpu.interface.launch import Dim3, Fault, FaultKind, Outcome, OutcomeKind
from cudasync.softgpu.interface.poison import poison
from cudasync.softgpu.oracle.emission import state_records as state
from cudasync.softgpu.oracle.emission.state_records import (
    DONE,
    FAULTED,
    STACK_OFFSET,
    BlockState,
    ThreadState,
)
from cudasync.softgpu.oracle.emission.suspension_points import StopKind
from cudasync.softgpu.oracle.interpreter.warp_collectives import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable

    from cudasync.softgpu.oracle.emission.suspension_points import Stop

_WARP = 32
# As strict as any variable may require.
_ALIGNMENT = 4096
_KINDS = {
    state.ILLEGAL_ADDRESS: FaultKind.ILLEGAL_ADDRESS,
    state.MISALIGNED: FaultKind.MISALIGNED,
    state.TIMEOUT: FaultKind.TIMEOUT,
    state.TRAP: FaultKind.TRAP,
    state.ASSERT: FaultKind.ASSERT,
}


@unique
class Life(Enum):
    READY = "ready"
    STOPPED = "stopped"
    WAITING = "waiting"
    DONE = "done"


@dataclass(slots=True)
class Thread:
    """One thread; `stop` is its suspension point while it is STOPPED or WAITING."""

    index: Dim3
    lane: int
    warp: int
    state: ThreadState
    address: int
    life: Life = Life.READY
    stop: Stop | None = None

    def hears(self, words: tuple[int, ...]) -> None:
        """Put results into the mailbox and make the thread ready."""
        for place, word in enumerate(words):
            self.state.mailbox[place] = word
        self.life = Life.READY

    def posted(self) -> tuple[int, ...]:
        return tuple(self.state.mailbox)


class Block:
    """A block in execution."""

    def __init__(
        self,
        kernel: str,
        run: Callable[[int], int],
        stops: tuple[Stop, ...],
        record: BlockState,
        sizes: tuple[int, int, int],
    ) -> None:
        """`sizes` are the bytes of a frame, of shared memory, and of a thread's local memory."""
        self._kernel = kernel
        self._run = run
        self._stops = stops
        self._record = record
        frame_bytes, shared_bytes, local_bytes = sizes
        x, y, z = record.block_size
        count = x * y * z
        # Shared memory is not zero on a GPU. Unwritten bytes should look like that.
        self._shared = _scratch(shared_bytes)
        self._local = _scratch(local_bytes * count)
        self._frames = _scratch(frame_bytes * count)
        record.shared, record.shared_bytes = _aligned(self._shared), shared_bytes
        record.local, record.local_bytes = _aligned(self._local), local_bytes * count
        poison(record.shared, shared_bytes)
        poison(record.local, record.local_bytes)
        self._threads: list[Thread] = []
        # For each barrier: the threads that arrived and went on since it last opened.
        self._arrived: dict[int, int] = {}
        for number in range(count):
            address = _aligned(self._frames) + frame_bytes * number
            state = ThreadState.from_address(address)
            index = (number % x, number // x % y, number // (x * y))
            state.linear, state.index[:] = number, index
            state.block = ctypes.addressof(record)
            state.local = record.local + local_bytes * number
            state.activation = address + STACK_OFFSET
            state.stack_end = address + frame_bytes
            self._threads.append(Thread(index, number % _WARP, number // _WARP, state, address))

    def turn(self) -> Outcome:
        """Run until the block is done or faults, or until only threads in polite loops are left."""
        before = [(thread.life, thread.stop) for thread in self._threads]
        for thread in self._threads:
            if thread.life is Life.WAITING:
                thread.life = Life.READY
        while True:
            for thread in self._threads:
                if thread.life is Life.READY:
                    fault = self._step(thread)
                    if fault is not None:
                        return Outcome(OutcomeKind.FAULT, fault)
            if not (self._do_warps() or self._open_barriers()):
                break
        lives = {thread.life for thread in self._threads}
        if lives == {Life.DONE}:
            return Outcome(OutcomeKind.DONE)
        if Life.WAITING in lives:
            now = [(thread.life, thread.stop) for thread in self._threads]
            works = any(thread.stop is not None and thread.stop.gets_on for thread in self._threads)
            return Outcome(OutcomeKind.YIELDED, has_moved=works or now != before)
        return Outcome(OutcomeKind.FAULT, self._stuck())

    @property
    def budget_left(self) -> int:
        return int(self._record.budget)

    def charge(self, cost: int) -> None:
        """Reduce the budget; the next back edge notices when nothing is left."""
        self._record.budget = max(0, self._record.budget - cost)

    def _step(self, thread: Thread) -> Fault | None:
        number = self._run(thread.address)
        if number == DONE:
            thread.life, thread.stop = Life.DONE, None
        elif number == FAULTED:
            return self._fault(thread)
        else:
            thread.stop = self._stops[number - 1]
            if "arrive" in thread.stop.instruction.modifiers:
                barrier = thread.posted()[0]
                self._arrived[barrier] = self._arrived.get(barrier, 0) + 1
                return None
            waits = thread.stop.kind is StopKind.YIELD
            thread.life = Life.WAITING if waits else Life.STOPPED
        return None

    # ---- warp-wide instructions

    def _do_warps(self) -> bool:
        """Execute every warp-wide instruction whose lanes have all arrived."""
        groups: dict[tuple[int, int], list[Thread]] = {}
        for thread in self._threads:
            stop = thread.stop
            if thread.life is Life.STOPPED and stop is not None and stop.kind is StopKind.WARP:
                # Lanes meet at any bar.warp.sync; for other instructions, at the same one.
                is_barrier = stop.instruction.opcode in ("bar", "barrier")
                place = 0 if is_barrier else id(stop)
                groups.setdefault((thread.warp, place), []).append(thread)
        is_any = False
        for group in groups.values():
            is_any = self._do_warp(group) or is_any
        return is_any

    def _do_warp(self, group: list[Thread]) -> bool:
        stop = group[0].stop
        assert stop is not None
        instruction = stop.instruction
        if "sync" not in instruction.modifiers and "warp" not in instruction.modifiers:
            _give_results(stop, group)
            return True
        is_any = False
        mask_place = len(instruction.operands) - 1
        if instruction.opcode not in ("bar", "barrier"):
            mask_place -= 1
        masks = {thread.lane: thread.posted()[mask_place] for thread in group}
        if "aligned" in instruction.modifiers:
            # The whole warp takes part, without a mask.
            masks = dict.fromkeys(masks, (1 << _WARP) - 1)
        for mask in set(masks.values()):
            named = [thread for thread in group if masks[thread.lane] == mask]
            present = {thread.lane for thread in named}
            awaited = {
                other.lane
                for other in self._threads
                if other.warp == group[0].warp
                and mask >> other.lane & 1
                and other.life is not Life.DONE
            }
            if awaited <= present:
                _give_results(stop, named)
                is_any = True
        return is_any

    # ---- barriers

    def _open_barriers(self) -> bool:
        """Open every barrier that all live threads, or the number that it names, have reached."""
        waiting: dict[int, list[Thread]] = {}
        for thread in self._threads:
            stop = thread.stop
            if thread.life is Life.STOPPED and stop is not None and stop.kind is StopKind.BARRIER:
                waiting.setdefault(thread.posted()[0], []).append(thread)
        alive = sum(thread.life is not Life.DONE for thread in self._threads)
        is_any = False
        for number, arrived in waiting.items():
            counts = {thread.posted()[1] for thread in arrived} - {0}
            needed = max(counts, default=alive)
            if len(arrived) + self._arrived.get(number, 0) >= needed:
                self._arrived.pop(number, None)
                _open(arrived)
                is_any = True
        return is_any

    # ---- faults

    def _fault(self, thread: Thread) -> Fault:
        record = self._record
        kind = _KINDS[record.fault_kind]
        # A stack overflow has no access to show.
        is_access = kind in (FaultKind.ILLEGAL_ADDRESS, FaultKind.MISALIGNED)
        is_access = is_access and record.fault_bytes > 0
        return Fault(
            kind,
            self._kernel,
            record.fault_line,
            tuple(record.block_index),
            (thread.index,),
            address=record.fault_address if is_access else 0,
            size_bytes=record.fault_bytes if is_access else 0,
            is_write=bool(record.fault_is_write) and is_access,
            space=state.SPACES[record.fault_space] if is_access else None,
            window=self._window(thread) if is_access else None,
        )

    def _window(self, thread: Thread) -> tuple[int, int] | None:
        """The memory that an access to shared or local memory must stay in."""
        record = self._record
        match state.SPACES[record.fault_space]:
            case StateSpace.SHARED:
                return record.shared, record.shared_bytes
            case StateSpace.LOCAL:
                return thread.state.local, record.local_bytes // len(self._threads)
        return None

    def _stuck(self) -> Fault:
        stuck = [thread for thread in self._threads if thread.life is Life.STOPPED]
        assert stuck[0].stop is not None
        line = stuck[0].stop.instruction.span.line
        indices = tuple(thread.index for thread in stuck)
        return Fault(
            FaultKind.BARRIER, self._kernel, line, tuple(self._record.block_index), indices
        )


def _give_results(stop: Stop, group: list[Thread]) -> None:
    results = evaluate(stop.instruction, {thread.lane: thread.posted() for thread in group})
    for thread in group:
        thread.hears(results[thread.lane])


def _open(arrived: list[Thread]) -> None:
    """Let the threads of a barrier go on, with the result of a reduction if there is one."""
    votes = [thread.posted()[2] for thread in arrived]
    for thread in arrived:
        assert thread.stop is not None
        modifiers = thread.stop.instruction.modifiers
        result = int(all(votes)) if "and" in modifiers else int(any(votes))
        thread.hears((sum(votes) if "popc" in modifiers else result,))


def _scratch(size: int) -> ctypes.Array[ctypes.c_char]:
    """Zeroed memory with room for alignment."""
    return (ctypes.c_char * (size + _ALIGNMENT))()


def _aligned(buffer: ctypes.Array[ctypes.c_char]) -> int:
    """The first address in a buffer that is aligned for any variable."""
    return -(-ctypes.addressof(buffer) // _ALIGNMENT) * _ALIGNMENT
