"""Floor 5. A server's changes since its checkpoint, on disk before it acknowledges them.

A record is written before the change is made and answered, so every acknowledged change is in the
file. The file survives the end of the server's process, but not a power failure. A record that is
cut off was never acknowledged, and is dropped.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    Value = np.ndarray[Any, Any]

# A mark, the lengths of the head and of the arrays, and a CRC of head and arrays.
_FRAME = struct.Struct("<4sIQI")
_MARK = b"csj1"


class Journal:
    """A file that grows by whole records."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size_bytes = os.lseek(self._file, 0, os.SEEK_END)
        self._broken = ""

    def append(self, about: Any, arrays: list[Value]) -> None:
        """Write one record; OSError leaves the file as it was."""
        if self._broken:
            raise OSError(f"{self.path} cannot be repaired: {self._broken}")
        told = [{"dtype": each.dtype.str, "shape": each.shape} for each in arrays]
        head = json.dumps({"about": about, "arrays": told}).encode()
        parts = [np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in arrays]
        check = zlib.crc32(head)
        for part in parts:
            check = zlib.crc32(part.data, check)
        length = sum(part.size for part in parts)
        try:
            self._write(memoryview(_FRAME.pack(_MARK, len(head), length, check) + head))
            for part in parts:
                self._write(part.data)
        except OSError as error:
            self._take_back()
            told_why = f"{error.strerror}: {self.path} cannot grow, so nothing was changed"
            raise OSError(error.errno, told_why) from error
        self.size_bytes += _FRAME.size + len(head) + length

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, x: memoryview) -> None:
        done = 0
        while done < len(x):
            done += os.write(self._file, x[done:])

    def _take_back(self) -> None:
        """Cut the file off after its last whole record."""
        try:
            os.ftruncate(self._file, self.size_bytes)
            os.lseek(self._file, self.size_bytes, os.SEEK_SET)
        except OSError as error:
            self._broken = str(error)


def records(path: str, *, is_last: bool) -> Iterator[tuple[Any, list[Value]]]:
    """The records of a file. A record that is cut off at the end of the last file is removed.

    ValueError for any other damage.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while (start := file.tell()) < size:
            found = _record(file, size)
            if found is None:
                if not is_last:
                    raise ValueError(f"{path} is damaged at byte {start}: use an older folder")
                os.truncate(path, start)
                return
            if isinstance(found, str):
                raise ValueError(f"{path} is damaged at byte {start}: {found}")
            yield found


def _record(file: Any, size: int) -> tuple[Any, list[Value]] | str | None:
    """The next record; None for a record that is cut off, a sentence for a damaged record."""
    frame = file.read(_FRAME.size)
    if len(frame) < _FRAME.size:
        return None
    mark, head_length, length, check = _FRAME.unpack(frame)
    if mark != _MARK:
        return "no record begins there"
    if file.tell() + head_length + length > size:
        return None
    head, body = file.read(head_length), file.read(length)
    if zlib.crc32(body, zlib.crc32(head)) != check:
        # Blocks of a file may reach the disk in any order, so the last record may have its full
        # length and still be incomplete.
        return None if file.tell() == size else "its checksum does not match"
    told, arrays, at = json.loads(head), [], 0
    for each in told["arrays"]:
        kind, shape = np.dtype(each["dtype"]), tuple(each["shape"])
        count = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(body, kind, count, at).reshape(shape))
        at += count * kind.itemsize
    return told["about"], arrays
