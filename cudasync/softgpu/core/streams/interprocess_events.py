"""Cellar, core. Events between processes: counters in a page that both processes map.

A record takes the next number, and marks it as reached once its stream gets there. A wait takes
the number of the latest record, from any process.

True at every call's end: `recorded` is the number of the latest record, and `reached` the highest
reached number. The page names the process of the latest record, so that a wait for a dead process
ends.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_CONTEXT,
    INVALID_HANDLE,
    LAUNCH_FAILED,
    OUT_OF_MEMORY,
    DriverFailure,
)
from cudasync.softgpu.core.driver_types.shared_pages import NONCE_BYTES, open_foreign
from cudasync.softgpu.core.streams.commands import Command, Step, Touched

if TYPE_CHECKING:
    from cudasync.softgpu.core.scheduling.executor import Executor
    from cudasync.softgpu.core.streams.streams import Stream

HANDLE_BYTES: Final = 64
_HANDLE: Final = struct.Struct(f"<4sIIi{NONCE_BYTES}s")
_MAGIC: Final = b"csev"
_PAGE: Final = mmap.PAGESIZE
# Recorded, reached, lost (the highest number that will never be reached), last recording process.
_WORDS: Final = struct.Struct("<4Q")


class SharedEvent:
    """The page of one event."""

    def __init__(self, descriptor: int, nonce: bytes, *, is_foreign: bool) -> None:
        self.descriptor = descriptor
        self.nonce = nonce
        self.is_foreign = is_foreign
        self._page = mmap.mmap(descriptor, _PAGE)

    @classmethod
    def make(cls) -> SharedEvent:
        """A new event, which no process has recorded."""
        nonce = os.urandom(NONCE_BYTES)
        try:
            descriptor = os.memfd_create(f"cudasync-event-{nonce.hex()}", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, _PAGE)
        except OSError as problem:
            raise DriverFailure(OUT_OF_MEMORY, str(problem)) from None
        return cls(descriptor, nonce, is_foreign=False)

    @classmethod
    def open(cls, handle: bytes) -> tuple[SharedEvent, int]:
        """The event of another process, and the ordinal of its device."""
        magic, process, number, ordinal, nonce = _HANDLE.unpack_from(handle)
        if magic != _MAGIC:
            raise DriverFailure(INVALID_HANDLE, "these bytes are not an IPC event handle")
        if process == os.getpid():
            raise DriverFailure(
                INVALID_CONTEXT, "this process exported the event: use its own handle"
            )
        descriptor = open_foreign(process, number, "event", nonce)
        return cls(descriptor, nonce, is_foreign=True), ordinal

    def handle(self, ordinal: int) -> bytes:
        """cuIpcGetEventHandle."""
        packed = _HANDLE.pack(_MAGIC, os.getpid(), self.descriptor, ordinal, self.nonce)
        return packed.ljust(HANDLE_BYTES, b"\0")

    def close(self) -> None:
        """Close the descriptor; commands still use the mapped page."""
        os.close(self.descriptor)

    def read(self) -> tuple[int, int, int, int]:
        """Recorded, reached, lost, and the last recording process."""
        recorded, reached, lost, recorder = _WORDS.unpack_from(self._page)
        return recorded, reached, lost, recorder

    def next_record(self) -> int:
        """Take the number of a new record."""
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)
        try:
            recorded, reached, lost, _ = self.read()
            _WORDS.pack_into(self._page, 0, recorded + 1, reached, lost, os.getpid())
        finally:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        return recorded + 1

    def say(self, number: int, *, is_reached: bool) -> None:
        """Mark a record as reached, or as lost. Each is one word, changed alone."""
        at = 8 if is_reached else 16
        held = int.from_bytes(self._page[at : at + 8], "little")
        self._page[at : at + 8] = max(held, number).to_bytes(8, "little")

    def is_reached(self, number: int) -> bool:
        """Whether a record is reached; DriverFailure LAUNCH_FAILED if it never will be."""
        recorded, reached, lost, recorder = self.read()
        if reached >= number:
            return True
        if lost >= number:
            raise DriverFailure(
                LAUNCH_FAILED, "work before the event failed in the process that recorded it"
            )
        if (
            recorded == number
            and recorder != os.getpid()
            and not os.path.exists(f"/proc/{recorder}")
        ):
            # The process may have marked the record just before its end.
            if self.read()[1] >= number:
                return True
            raise DriverFailure(
                LAUNCH_FAILED,
                f"process {recorder} ended before it reached the event that it recorded",
            )
        return False


class SaysReached(Command):
    """The point in a stream that a shared event stands for."""

    __slots__ = ("number", "shared")

    def __init__(self, stream: Stream, shared: SharedEvent) -> None:
        super().__init__(stream)
        self.shared = shared
        self.number = 0

    def run(self) -> Step:
        self.shared.say(self.number, is_reached=True)
        return Step.DONE

    def dropped(self) -> None:
        self.shared.say(self.number, is_reached=False)

    def touched(self) -> Touched:
        return Touched()

    def describe(self) -> str:
        return "a record of an event between processes"


class WaitsForProcess(Command):
    """Holds its stream until a record of a shared event, made by any process."""

    __slots__ = ("number", "shared")

    is_access = False

    def __init__(self, stream: Stream, shared: SharedEvent, number: int) -> None:
        super().__init__(stream)
        self.shared = shared
        self.number = number

    def run(self) -> Step:
        return Step.DONE if self.shared.is_reached(self.number) else Step.YIELDED

    def touched(self) -> Touched:
        return Touched()

    def describe(self) -> str:
        return "a wait for an event of another process"

    def awaits(self) -> str:
        return "another process to reach its event"


def record(executor: Executor, shared: SharedEvent, stream: Stream) -> None:
    """Let the event stand for this point of the stream."""
    said = SaysReached(stream, shared)
    # The number is taken before the command: later waits are for this record.
    said.number = shared.next_record()
    try:
        executor.enqueue(said)
    except BaseException:
        shared.say(said.number, is_reached=False)
        raise
