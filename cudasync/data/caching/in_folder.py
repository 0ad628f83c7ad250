"""Floor 4. The store of a cache in a folder, which later processes can use, too.

        cache.json   the pipeline that made it, and the number of items once it is complete
        items        the items, packed, one behind the other
        index        the end of each item: eight bytes each, written behind the item

So a process may be killed at any point: the next one cuts off data without an entry in the index.
Items are read, not mapped: if somebody shortens a file, that is an error and not a SIGBUS. An item
has its number and a checksum of all its bytes, so a wrong entry in the index is found, too.

Unpickling runs code. So folder and files must belong to this user, and nobody else may write to
them. The open files are asked, not their names, which others might exchange meanwhile.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import struct
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cudasync.data.packing import packed, places, unpacked
from cudasync.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_FORMAT = 2
_ENTRY = struct.Struct("<Q")
# The head of an item: a checksum of all bytes behind it, its number, its number of buffers, and the
# length of its pickle. The checksum has a start value, so zeros, as in an unwritten part of a file,
# are never valid.
_HEAD, _CHECKED, _CHECK = struct.Struct("<IQQQ"), 4, 1


class InFolder:
    """The items of a pipeline in the files of a folder; one process at a time may write it."""

    def __init__(self, folder: Path, made: Sequence[str]) -> None:
        """`made` describes the pipeline. ValueError if another pipeline made the folder.

        PermissionError if it is not this user's alone.
        """
        self._folder, self._made = folder, list(made)
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
                with self._opened() as folder:
                    self._reader = self._own(folder, "items", os.O_RDONLY)
            start, end = self._ends[number - 1] if number else 0, self._ends[number]
            there = os.fstat(self._reader).st_size
            item = os.pread(self._reader, end - start, start) if start < end <= there else b""
        is_right = len(item) >= _HEAD.size
        if is_right:
            checksum, kept_number, buffers, head_size = _HEAD.unpack_from(item)
            is_right = zlib.crc32(memoryview(item)[_CHECKED:], _CHECK) == checksum
        if not is_right or kept_number != number:
            raise OSError(f"{self._folder} is damaged at item {number}: delete the folder")
        sizes = struct.unpack_from(f"<{buffers}Q", item, _HEAD.size)
        head_at, *starts = places([_HEAD.size + 8 * buffers, head_size, *sizes])[0][1:]
        whole = memoryview(item)
        parts = [whole[at : at + size] for at, size in zip(starts, sizes, strict=True)]
        return unpacked(item[head_at : head_at + head_size], parts)

    def put(self, number: int, item: Any) -> None:
        head, buffers = packed(item)
        sizes = [each.nbytes for each in buffers]
        first = _HEAD.pack(0, number, len(buffers), len(head))
        first += struct.pack(f"<{len(buffers)}Q", *sizes)
        parts = [first, head, *buffers]
        starts, size = places([len(first), len(head), *sizes])
        record = bytearray(size)
        for at, part in zip(starts, parts, strict=True):
            record[at : at + len(part)] = part
        checksum = zlib.crc32(memoryview(record)[_CHECKED:], _CHECK)
        record[:_CHECKED] = checksum.to_bytes(_CHECKED, "little")
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

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The open folder. PermissionError if it is not this user's alone."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._raise_unless_own(folder, self._folder)
            yield folder
        finally:
            os.close(folder)

    def _own(self, folder: int, name: str, flags: int) -> int:
        """A file of the open folder, opened. PermissionError if it is not this user's alone."""
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            self._raise_unless_own(file, self._folder / name)
        except BaseException:
            os.close(file)
            raise
        return file

    def _raise_unless_own(self, file: int, path: Path) -> None:
        found = os.fstat(file)
        if found.st_uid != os.geteuid():
            what = f"belongs to user {found.st_uid}, not to {os.geteuid()}: give another folder"
        elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            what = (
                f"can be written by other users: say `chmod -R go-w {self._folder}` if only you "
                f"wrote there, or give another folder"
            )
        else:
            return
        raise PermissionError(f"{path} {what}; reading a cache runs code that stands in it")

    def _look(self) -> None:
        """Take over the folder's items. ValueError for another pipeline's cache, or for no
        cache."""
        if not self._folder.exists():
            return
        with self._opened() as folder:
            names = os.listdir(folder)
            if "cache.json" not in names:
                if names:
                    raise ValueError(
                        f"{self._folder} is not empty and is not a cache: give another folder"
                    )
                return
            count = self._count_of_this_pipeline(self._content(folder, "cache.json"))
            entries = self._content(folder, "index") if "index" in names else b""
            size = 0
            if "items" in names:
                size = os.stat("items", dir_fd=folder, follow_symlinks=False).st_size
        usable = len(entries) // _ENTRY.size * _ENTRY.size
        ends = [end for (end,) in _ENTRY.iter_unpack(entries[:usable])]
        while ends and ends[-1] > size:
            ends.pop()
        self._ends = ends
        self.is_whole = count == len(ends)

    def _content(self, folder: int, name: str) -> bytes:
        with open(self._own(folder, name, os.O_RDONLY), "rb") as file:
            return file.read()

    def _count_of_this_pipeline(self, told: bytes) -> int | None:
        """The number of items in a complete cache, by `cache.json`. ValueError if another pipeline
        wrote it, or nobody did."""
        try:
            kept = json.loads(told)
            version, theirs, count = kept["format"], kept["made"], kept["count"]
            is_right = isinstance(version, int) and isinstance(theirs, list)
            is_right = is_right and (count is None or isinstance(count, int))
        except (ValueError, LookupError, TypeError):
            is_right = False
        if not is_right:
            raise ValueError(f"{self._folder}/cache.json is damaged: delete the folder")
        if version != _FORMAT:
            raise ValueError(
                f"{self._folder} was written by another version of cudasync: delete the folder"
            )
        mine = self._made
        if theirs != mine:
            at = next((n for n, (a, b) in enumerate(zip(theirs, mine)) if a != b), None)  # noqa: B905
            at = min(len(theirs), len(mine)) if at is None else at
            there, here = (each[at] if at < len(each) else "none" for each in (theirs, mine))
            raise ValueError(
                f"{self._folder} was made by another pipeline: its stage {at} is {there}, this "
                f"pipeline's is {here} (the number stands for code, values and data); give another "
                f"folder, or delete this one"
            )
        return count  # type: ignore[no-any-return]

    def _writing(self) -> tuple[int, int]:
        """The files, open for this process alone, cut to the complete items."""
        if self._writers is None:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with self._opened() as folder:
                index = self._own(folder, "index", flags)
                try:
                    fcntl.flock(index, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    items = self._own(folder, "items", flags)
                except BaseException as error:
                    os.close(index)
                    if isinstance(error, BlockingIOError):
                        raise OSError(
                            f"{self._folder} is being written by another process: give each "
                            f"process its own folder"
                        ) from error
                    raise
                self._writers = items, index
                if "cache.json" not in os.listdir(folder):
                    self._say(None)
            # Another process may have written since the last look.
            self._look()
            os.ftruncate(items, self._ends[-1] if self._ends else 0)
            os.ftruncate(index, len(self._ends) * _ENTRY.size)
        return self._writers

    def _say(self, count: int | None) -> None:
        """Write `cache.json` atomically."""
        told = {"format": _FORMAT, "made": self._made, "count": count}
        with self._opened() as folder:
            new = self._own(folder, "cache.json.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            with open(new, "w", encoding="utf-8") as file:
                file.write(json.dumps(told, indent=1) + "\n")
            os.replace("cache.json.new", "cache.json", src_dir_fd=folder, dst_dir_fd=folder)


def _write(file: int, record: bytes | bytearray) -> None:
    """Write all of it. A full disk takes a part first, and then raises OSError."""
    left = memoryview(record)
    while left:
        left = left[os.write(file, left) :]
