"""Floor 5. The folder from which a server recovers: a checkpoint, and a journal since then.

`server-N.state` is a checkpoint and names the journal that follows it, `server-N.K.journal`. A new
checkpoint begins the next journal before it is written, so a folder may have several journals in a
row. Each begins with the checksum of the last record before it. So a file that is missing, or has
lost its end, is noticed. `server-N.lock` is locked as long as a server uses the folder.
"""

from __future__ import annotations

import fcntl
import os
import re
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync.kvstore import array_file
from cudasync.kvstore.servers.journal import Journal, Records
from cudasync.kvstore.servers.shard import Shard

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    Value = np.ndarray[Any, Any]

# A checkpoint is due once the journal is longer than this, and than four checkpoints.
LONG_BYTES = 256 << 20


class Folder:
    """The files of server `number`."""

    def __init__(self, path: Any, about: dict[str, int], long_bytes: int = LONG_BYTES) -> None:
        self._path = os.path.abspath(os.fspath(path))
        # The number of this server and the count of servers; every file begins with them.
        self._about, self._number = about, about["server"]
        self._long_bytes = long_bytes
        self._enough_bytes = long_bytes
        self._generation = 0
        self._journal: Journal | None = None
        self._claim: Claim | None = None

    def open(self, replay: Callable[[Shard, Any, list[Value]], None]) -> Shard:
        """The shard as it was when its server ended; an empty shard for an empty folder.

        `replay(shard, record, arrays)` repeats a change. ValueError if files are damaged or
        missing, belong to another number of servers, or are in use by another server.
        """
        os.makedirs(self._path, exist_ok=True)
        claim = Claim(os.path.join(self._path, f"server-{self._number}.lock"))
        try:
            shard = self._opened(replay)
        except BaseException:
            claim.release()
            raise
        self._claim = claim
        return shard

    def _opened(self, replay: Callable[[Shard, Any, list[Value]], None]) -> Shard:
        array_file.delete_leftovers(self._state)
        shard, first, chain = Shard(), 0, 0
        if os.path.exists(self._state):
            shard, told = Shard.restore(self._state)
            raise_unless_alike(told, self._about, self._state)
            first, chain = told["journal"], told["after"]
        known = self._generations(first)
        for generation in known:
            chain = self._replayed(generation, chain, shard, replay, generation == known[-1])
        self._generation = known[-1] if known else 0
        self._journal = self._begun(self._generation, chain)
        self._drop_before(first)
        return shard

    def note(self, record: Any, arrays: list[Value]) -> None:
        """Write down a change before it is made; OSError if this fails."""
        assert self._journal is not None
        self._journal.append(record, arrays)

    @property
    def is_long(self) -> bool:
        """True once a checkpoint is due."""
        return self._journal is not None and self._journal.size_bytes > self._enough_bytes

    def checkpoint(self, shard: Shard, stamp: int = 0) -> None:
        """Write a checkpoint and begin a new journal. On OSError the old files remain valid.

        Files of all servers with one `stamp`, which is not 0, are one checkpoint.
        """
        begun = self._generation + 1

        def turn() -> dict[str, Any]:
            # No push is under way, so the next one goes into the new journal.
            assert self._journal is not None
            chain = self._journal.chain
            after = self._begun(begun, chain)
            self._journal.close()
            self._journal, self._generation = after, begun
            return {**self._about, "journal": begun, "after": chain, "stamp": stamp}

        # If it fails, the next attempt comes once the new journal is as long.
        shard.checkpoint(self._state, turn)
        self._drop_before(begun)
        self._enough_bytes = max(self._long_bytes, 4 * os.path.getsize(self._state))

    def close(self) -> None:
        """Close the journal, and leave the folder to another server. Closing twice is harmless."""
        if self._journal is not None:
            self._journal.close()
        if self._claim is not None:
            self._claim.release()

    @property
    def _state(self) -> str:
        return os.path.join(self._path, f"server-{self._number}.state")

    def _generations(self, first: int) -> list[int]:
        """The journals from `first` on; ValueError if one of them is missing."""
        found = [each for each in self._all_generations() if each >= first]
        has_state = os.path.exists(self._state)
        wanted = [*range(first, found[-1] + 1)] if found else [first] if has_state else []
        if missing := [each for each in wanted if each not in found]:
            path = self._state if not has_state else self._journal_path(missing[0])
            raise ValueError(
                f"{path} is missing, although later files of this server are here: bring it back, "
                f"or empty the folders of all servers to begin anew"
            )
        return found

    def _all_generations(self) -> list[int]:
        named = (
            re.fullmatch(rf"server-{self._number}\.(\d+)\.journal", each)
            for each in os.listdir(self._path)
        )
        return sorted(int(each[1]) for each in named if each)

    def _replayed(
        self, generation: int, chain: int, shard: Shard, replay: Any, is_last: bool
    ) -> int:
        """Repeat a journal's changes, and return its last checksum.

        `chain` is the last checksum before the journal.
        """
        path = self._journal_path(generation)
        found = Records(path)
        for record, arrays in found:
            if not isinstance(record, dict):
                replay(shard, record, arrays)
                continue
            raise_unless_alike(record, self._about, path)
            if record["after"] != chain:
                raise ValueError(
                    f"{path} does not continue the file before it: that file is of another time, "
                    f"or has lost its end; use an older folder"
                )
        if is_last:
            # Nobody received an acknowledgement of a record that was cut off.
            os.truncate(path, found.end)
        return found.chain if found.end else chain

    def _begun(self, generation: int, chain: int) -> Journal:
        """The journal, with its first record; `chain` is the last checksum, here or before."""
        made = Journal(self._journal_path(generation), chain)
        try:
            if not made.size_bytes:
                made.append({**self._about, "after": chain}, [])
        except OSError:
            # An empty journal would mean that the journal before it is complete.
            made.close()
            os.unlink(made.path)
            raise
        return made

    def _journal_path(self, generation: int) -> str:
        return os.path.join(self._path, f"server-{self._number}.{generation}.journal")

    def _drop_before(self, generation: int) -> None:
        """Delete the journals that a checkpoint replaces."""
        for each in self._all_generations():
            if each < generation:
                with suppress(OSError):
                    os.unlink(self._journal_path(each))


class Claim:
    """The lock of a server's files, held until `release`, or until the process ends.

    ValueError if another server holds it.
    """

    def __init__(self, path: str) -> None:
        self._file = -1
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 20, 0).decode() or "unknown"
            self.release()
            raise ValueError(
                f"{os.path.dirname(path)} is in use by a server of process {holder}: end that job "
                f"first (InProcessServers.shutdown() in a program), or give another folder"
            ) from None
        except OSError:
            # This file system has no locks, so nobody can be refused.
            pass
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, str(os.getpid()).encode(), 0)
        _hold(self)

    def release(self) -> None:
        """Let another server have the files. Releasing twice is harmless."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # At the interpreter's end the name `os` may be gone.
        if self._file >= 0:
            close(self._file)


_HELD: weakref.WeakSet[Claim] = weakref.WeakSet()
_AT_FORK: list[bool] = []


def _hold(claim: Claim) -> None:
    """Note a claim: a child of a fork must not hold it beyond the end of this process."""
    _HELD.add(claim)
    if not _AT_FORK:
        _AT_FORK.append(True)
        os.register_at_fork(after_in_child=_release_all)


def _release_all() -> None:
    for each in list(_HELD):
        each.release()


def raise_unless_alike(told: dict[str, Any], about: dict[str, Any], path: str) -> None:
    """ValueError for the file of another server."""
    for name in ("server", "servers"):
        if told.get(name) != about[name]:
            raise ValueError(
                f"{path} is of {name} {told.get(name)}, this is {about[name]}: use as many "
                f"servers as before"
            )
