"""Floor 4. The store of a cache in a folder, which later processes can use, too.

        cache.json   the pipeline that made it, and the number of items once it is complete
        items        the items, packed, one behind the other
        index        the end of each item: eight bytes each, written behind the item

So a process may be killed at any point: the next one cuts off data without an entry in the index.
Items are read, not mapped: if somebody shortens a file, that is an error and not a SIGBUS.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any

from cudasync.data.packing import packed, places, unpacked
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_FORMAT = 1
_ENTRY = struct.Struct("<Q")
# The head of an item: its number of buffers, the length of its pickle, and a checksum of the
# pickle. The checksum has a start value, so zeros, as in an unwritten part of a file, are never
# valid.
_HEAD, _CHECK = struct.Struct("<IQI"), 1


class InFolder:
    """The items of a pipeline in the files of a folder; one process at a time may write it."""

    def __init__(self, folder: Path, made: Callable[[], Sequence[str]]) -> None:
        """`made` describes the pipeline. ValueError if another pipeline made the folder."""
        self._folder, self._made = folder, made
        self._lock = Lock()
        self._ends: list[int] = []
        self.is_whole = False
        self._reader: int | None = None
        self._writers: tuple[int, int] | None = None
        self._look()

    @property
    def count(self) -> int:
        return len(self._ends)

    def get(self, number: int) -> Any:
        with self._lock:
            if self._reader is None:
                self._reader = os.open(self._folder / "items", os.O_RDONLY)
            start, end = self._ends[number - 1] if number else 0, self._ends[number]
            item = os.pread(self._reader, end - start, start)
        if len(item) < end - start:
            raise OSError(f"{self._folder} is damaged: item {number} is cut off; delete the folder")
        buffers, head_size, checksum = _HEAD.unpack_from(item)
        sizes = struct.unpack_from(f"<{buffers}Q", item, _HEAD.size)
        head_at, *starts = places([_HEAD.size + 8 * buffers, head_size, *sizes])[0][1:]
        head = item[head_at : head_at + head_size]
        if zlib.crc32(head, _CHECK) != checksum:
            raise OSError(f"{self._folder} is damaged at item {number}: delete the folder")
        whole = memoryview(item)
        parts = [whole[at : at + size] for at, size in zip(starts, sizes, strict=True)]
        return unpacked(head, parts)

    def put(self, number: int, item: Any) -> None:
        head, buffers = packed(item)
        sizes = [each.nbytes for each in buffers]
        first = _HEAD.pack(len(buffers), len(head), zlib.crc32(head, _CHECK))
        first += struct.pack(f"<{len(buffers)}Q", *sizes)
        parts = [first, head, *buffers]
        starts, size = places([len(first), len(head), *sizes])
        record = bytearray(size)
        for at, part in zip(starts, parts, strict=True):
            record[at : at + len(part)] = part
        with self._lock:
            if number != len(self._ends):
                return
            items, index = self._writing()
            if number != len(self._ends):
                return
            end = (self._ends[-1] if self._ends else 0) + size
            try:
                _write(items, record)
                _write(index, _ENTRY.pack(end))
            except OSError:
                # The next writer cuts off an item that was written in part.
                self.flush()
                raise
            self._ends.append(end)

    def end(self, count: int) -> None:
        with self._lock:
            if count == len(self._ends) and not self.is_whole:
                self._writing()
                self.flush()
                self._say(count)
                self.is_whole = True

    def forget(self) -> None:
        with self._lock:
            items, index = self._writing()
            os.ftruncate(items, 0)
            os.ftruncate(index, 0)
            self._ends = []

    def flush(self) -> None:
        """Sync and close the files, so that another process may write."""
        with self._lock:
            writers, self._writers = self._writers, None
            for each in writers or ():
                try:
                    os.fsync(each)
                finally:
                    os.close(each)
            if self._reader is not None:
                os.close(self._reader)
                self._reader = None

    def _look(self) -> None:
        """Take over the folder's items. ValueError for another pipeline's cache, or for no
        cache."""
        told = self._folder / "cache.json"
        if not told.exists():
            if self._folder.exists() and any(self._folder.iterdir()):
                raise ValueError(
                    f"{self._folder} is not empty and is not a cache: give another folder"
                )
            return
        kept = json.loads(told.read_text(encoding="utf-8"))
        mine = list(self._made())
        if kept.get("format") != _FORMAT:
            raise ValueError(
                f"{self._folder} was written by another version of cudasync: delete the folder"
            )
        if kept["made"] != mine:
            theirs = kept["made"]
            at = next((n for n, (a, b) in enumerate(zip(theirs, mine)) if a != b), None)  # noqa: B905
            at = min(len(theirs), len(mine)) if at is None else at
            there, here = (each[at] if at < len(each) else "none" for each in (theirs, mine))
            raise ValueError(
                f"{self._folder} was made by another pipeline: its stage {at} is {there}, this "
                f"pipeline's is {here}; give another folder, or delete this one"
            )
        size = (self._folder / "items").stat().st_size if (self._folder / "items").exists() else 0
        index = self._folder / "index"
        entries = index.read_bytes() if index.exists() else b""
        usable = len(entries) // _ENTRY.size * _ENTRY.size
        ends = [end for (end,) in _ENTRY.iter_unpack(entries[:usable])]
        while ends and ends[-1] > size:
            ends.pop()
        self._ends = ends
        self.is_whole = kept["count"] is not None and kept["count"] == len(ends)

    def _writing(self) -> tuple[int, int]:
        """The files, open for this process alone, cut to the complete items."""
        if self._writers is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            index = os.open(self._folder / "index", flags, 0o666)
            try:
                fcntl.flock(index, fcntl.LOCK_EX | fcntl.LOCK_NB)
                items = os.open(self._folder / "items", flags, 0o666)
            except BlockingIOError as error:
                os.close(index)
                raise OSError(
                    f"{self._folder} is being written by another process: give each process its "
                    f"own folder"
                ) from error
            self._writers = items, index
            if not (self._folder / "cache.json").exists():
                self._say(None)
            # Another process may have written since the last look.
            self._look()
            os.ftruncate(items, self._ends[-1] if self._ends else 0)
            os.ftruncate(index, len(self._ends) * _ENTRY.size)
        return self._writers

    def _say(self, count: int | None) -> None:
        """Write `cache.json` atomically."""
        new = self._folder / "cache.json.new"
        told = {"format": _FORMAT, "made": list(self._made()), "count": count}
        new.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        new.replace(self._folder / "cache.json")


def _write(file: int, record: bytes | bytearray) -> None:
    """Write all of it. A full disk takes a part first, and then raises OSError."""
    left = memoryview(record)
    while left:
        left = left[os.write(file, left) :]
