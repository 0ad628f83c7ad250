"""Floor 4. A worker process as seen from its parent: its pipe, and the blocks that it writes.

The process is spawned, not forked, because this process has threads and a device. So its arguments
must be picklable, and the program's main module must do nothing when it is imported.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync.data.packing import packed, places, unpacked
from cudasync.data.processes import child
from cudasync.data.processes.blocks import Block
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.data.chunks import Outcome

# How long an ending process may take for its current sample, before it is killed.
PATIENCE_S = 5.0
# The limit of blocks, and of their bytes, that arrays may keep; beyond it arrays are copied out.
_MOST_BLOCKS, _MOST_BYTES = 32, 64 << 20
_SPAWN: Any = multiprocessing.get_context("spawn")


class Worker:
    """A process, begun with its first chunk. One thread at a time may use it."""

    def __init__(self, name: str, fn: bytes, view: bytes | None) -> None:
        self.name = name
        self._given = fn, view
        self._process: Any = None
        self._pipe: Any = None
        self._blocks: list[Block] = []
        # The names of blocks that the process must forget.
        self._gone: list[str] = []
        # Held while the process has a chunk.
        self.lock = Lock()
        self._is_ended = False

    def done(self, items: Sequence[Any], what: str, *, is_numbers: bool, skips: bool) -> Outcome:
        """The outcome of the items in the process; ChildProcessError if it dies meanwhile."""
        with self.lock:
            if self._is_ended:
                raise ChildProcessError(f"worker process {self.name} was closed")
            if self._process is None:
                self._start()
            with suppress(EOFError, ConnectionError):
                return self._exchanged(items, is_numbers=is_numbers, skips=skips)
            # Raised outside of the `with`: the end of the pipe adds nothing but its frames.
            raise ChildProcessError(self._obituary(what))

    def _start(self) -> None:
        here, there = _SPAWN.Pipe()
        fn, view = self._given
        process = _SPAWN.Process(
            target=child.main, args=(there, fn, view), name=f"cudasync {self.name}", daemon=True
        )
        # A new process inherits the signal mask of the thread that starts it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            there.close()
        self._process, self._pipe = process, here

    def _exchanged(self, items: Sequence[Any], *, is_numbers: bool, skips: bool) -> Outcome:
        head, buffers = packed(items)
        block = self._free_block()
        name = None if block is None else block.name
        gone, self._gone = self._gone, []
        self._pipe.send(tuple(child.Request(name, gone, is_numbers, len(buffers), skips)))
        self._pipe.send_bytes(head)
        for each in buffers:
            self._pipe.send_bytes(each)
        answer = self._pipe.recv()
        if isinstance(answer, int):
            block = self._grown(block, answer)
            self._pipe.send(block.name)
            answer = self._pipe.recv()
        outcome, sizes, error, told = child.Answer(*answer)
        head = self._pipe.recv_bytes()
        lent: list[Any] = []
        if sizes:
            assert block is not None
            block.unlink()
            lent = self._lent(block, sizes)
        outcome.found = unpacked(head, lent)
        if error is not None:
            outcome.error = pickle.loads(error)
            outcome.error.add_note(f"In {self._process.name} (pid {self._process.pid}):\n{told}")
        return outcome

    def _free_block(self) -> Block | None:
        return next((each for each in self._blocks if each.is_free), None)

    def _grown(self, old: Block | None, size: int) -> Block:
        """A block of at least that size, which replaces one that was too small."""
        if old is not None:
            old.unlink()
            self._blocks.remove(old)
            self._gone.append(old.name)
            size = max(size, 2 * old.size)
        block = Block(size)
        self._blocks.append(block)
        return block

    def _lent(self, block: Block, sizes: list[int]) -> list[Any]:
        """The memory of the arrays: in the block, or copied if too many blocks are kept by
        arrays."""
        kept = [each.size for each in self._blocks if not each.is_free]
        memory = block.lend()
        starts, _ = places(sizes)
        parts = [memory[at : at + size] for at, size in zip(starts, sizes, strict=True)]
        if len(kept) >= _MOST_BLOCKS - 1 or sum(kept) + block.size > _MOST_BYTES:
            return [bytearray(each) for each in parts]
        return parts

    def _obituary(self, what: str) -> str:
        process = self._process
        process.join(PATIENCE_S)
        code = process.exitcode
        who = f"worker process {process.name!r} (pid {process.pid})"
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            why = " (out of memory?)" if name == "SIGKILL" else ""
            return f"{who} was killed by {name}{why} over {what}"
        return (
            f"{who} ended with exit code {code} over {what}: see its output on stderr. A program "
            f"must start processes below `if __name__ == '__main__':`"
        )

    def hang_up(self, until: float) -> None:
        """Let the process end after its current sample, or kill it at `until`, by
        `time.monotonic`."""
        if not self.lock.acquire(timeout=max(0.0, until - time.monotonic())):
            # The thread that waits for its answer then gets an error.
            if (process := self._process) is not None:
                process.kill()
            self.lock.acquire()
        try:
            self._is_ended = True
            for each in self._blocks:
                each.unlink()
            self._blocks = []
            if self._process is not None:
                self._pipe.close()
        finally:
            self.lock.release()

    def join(self, until: float) -> None:
        """Wait until `until` for a process that was hung up on; then kill it."""
        if self._process is not None:
            self._process.join(max(0.0, until - time.monotonic()))
            if self._process.exitcode is None:
                self._process.kill()
            self._process.join()
            self._process.close()
            self._process = None
