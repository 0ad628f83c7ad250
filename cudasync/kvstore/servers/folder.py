"""Floor 5. The folder from which a server recovers: a checkpoint, and a journal since then.

`server-N.state` is a checkpoint and names the journal that follows it, `server-N.K.journal`. A new
checkpoint begins the next journal before it is written, so a folder may have several journals in a
row.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cudasync.kvstore.servers.journal import Journal, records
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

    def open(self, replay: Callable[[Shard, Any, list[Value]], None]) -> Shard:
        """The shard as it was when its server ended; an empty shard for an empty folder.

        `replay(shard, record, arrays)` repeats a change. ValueError if the folder is damaged, or
        belongs to another number of servers.
        """
        os.makedirs(self._path, exist_ok=True)
        shard, first = Shard(), 0
        if os.path.exists(self._state):
            shard, told = Shard.restore(self._state)
            raise_unless_alike(told, self._about, self._state)
            first = told["journal"]
        known = [first]
        while os.path.exists(self._journal_path(known[-1] + 1)):
            known.append(known[-1] + 1)
        for generation in known:
            path = self._journal_path(generation)
            if os.path.exists(path):
                for record, arrays in records(path, is_last=generation == known[-1]):
                    if isinstance(record, dict):
                        raise_unless_alike(record, self._about, path)
                    else:
                        replay(shard, record, arrays)
        self._generation = known[-1]
        self._journal = self._begun(self._generation)
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

    def checkpoint(self, shard: Shard) -> None:
        """Write a checkpoint and begin a new journal. On OSError the old files remain valid."""
        begun = self._generation + 1

        def turn() -> dict[str, Any]:
            # No push is under way, so the next one goes into the new journal.
            after = self._begun(begun)
            if self._journal is not None:
                self._journal.close()
            self._journal, self._generation = after, begun
            return {**self._about, "journal": begun}

        # If it fails, the next attempt comes once the new journal is as long.
        shard.checkpoint(self._state, turn)
        self._drop_before(begun)
        self._enough_bytes = max(self._long_bytes, 4 * os.path.getsize(self._state))

    def close(self) -> None:
        """Close the journal; nothing is written any more."""
        if self._journal is not None:
            self._journal.close()

    @property
    def _state(self) -> str:
        return os.path.join(self._path, f"server-{self._number}.state")

    def _begun(self, generation: int) -> Journal:
        made = Journal(self._journal_path(generation))
        try:
            if not made.size_bytes:
                made.append(self._about, [])
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
        while generation > 0:
            generation -= 1
            with suppress(OSError):
                os.unlink(self._journal_path(generation))
                continue
            return


def raise_unless_alike(told: dict[str, Any], about: dict[str, Any], path: str) -> None:
    """ValueError for the file of another server."""
    for name in ("server", "servers"):
        if told.get(name) != about[name]:
            raise ValueError(
                f"{path} is of {name} {told.get(name)}, this is {about[name]}: use as many "
                f"servers as before"
            )
