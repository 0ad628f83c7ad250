"""Floor 5. A server's changes since its checkpoint, on disk before it acknowledges them.

A record is written before the change is made and answered, so every acknowledged change is in the
file. The file survives the end of the server's process, but not a power failure.

A killed process leaves a prefix of the record that it wrote. So a file may end in a record that is
cut off; nobody received its acknowledgement, and it is dropped. Anything else is damage. To tell
them apart, the lengths of a record have a checksum of their own. It includes the checksum of the
record before, so a record that is missing in the middle is damage, too.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.kvstore.array_file import bytes_of, write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Value = np.ndarray[Any, Any]

# A mark, the lengths of the head and of the arrays, and a CRC of head and arrays. A CRC of these
# four follows, which continues the one of the record before.
_FRAME = struct.Struct("<4sIQI")
_CHECK_BYTES = 4
_MARK = b"csj2"


class Journal:
    """A file that grows by whole records; `chain` is the checksum of its last one."""

    def __init__(self, path: str, chain: int = 0) -> None:
        self.path = path
        self._file = -1
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = os.lseek(self._file, 0, os.SEEK_END)
        # The file's length and last checksum. They change together, by one assignment.
        self._whole = size, chain if size else 0
        # True while the file may have more than whole records.
        self._is_torn = False

    @property
    def size_bytes(self) -> int:
        """The length of all whole records."""
        return self._whole[0]

    @property
    def chain(self) -> int:
        """The checksum of the last record; it stands for all records of the file."""
        return self._whole[1]

    def append(self, about: Any, arrays: list[Value]) -> None:
        """Write one record; OSError leaves the file as it was."""
        told = [{"dtype": each.dtype.str, "shape": each.shape} for each in arrays]
        head = json.dumps({"about": about, "arrays": told}).encode()
        parts = [bytes_of(each) for each in arrays]
        check, length = zlib.crc32(head), 0
        for part in parts:
            check = zlib.crc32(part.data, check)
            length += part.size
        size, chain = self._whole
        frame = _FRAME.pack(_MARK, len(head), length, check)
        chain = zlib.crc32(frame, chain)
        first = b"".join((frame, chain.to_bytes(_CHECK_BYTES, "little"), head))
        try:
            # An interrupt, or an error that came twice, may have left a part of a record.
            if self._is_torn:
                self._cut()
            self._is_torn = True
            write_all(self._file, memoryview(first))
            for part in parts:
                write_all(self._file, part.data)
        except OSError as error:
            told_why = f"{error.strerror}: {self.path} cannot grow, so nothing was changed"
            try:
                self._cut()
            except OSError as second:
                told_why += f"; the next record waits until it can be cut ({second.strerror})"
            raise OSError(error.errno, told_why) from error
        self._whole = size + len(first) + length, chain
        self._is_torn = False

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # At the interpreter's end the name `os` may be gone.
        if self._file >= 0:
            close(self._file)

    def _cut(self) -> None:
        """Cut the file off after its last whole record."""
        os.ftruncate(self._file, self.size_bytes)
        os.lseek(self._file, self.size_bytes, os.SEEK_SET)
        self._is_torn = False


class Records:
    """The whole records of a file, one after the other; ValueError for damage.

    Behind the last of them `end` is its end in the file, and `chain` its checksum. What follows is
    a record that was cut off.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.end = self.chain = 0

    def __iter__(self) -> Iterator[tuple[Any, list[Value]]]:
        with open(self._path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            while self.end < size:
                found = self._next(file, size)
                if found is None:
                    return
                if isinstance(found, str):
                    raise ValueError(
                        f"{self._path} is damaged at byte {self.end} of {size}: {found}; use an "
                        f"older folder, or cut the file there to go on without what follows"
                    )
                yield found

    def _next(self, file: Any, size: int) -> tuple[Any, list[Value]] | str | None:
        """The next record; None for a record that is cut off, a sentence for a damaged record."""
        frame, check_of_frame = file.read(_FRAME.size), file.read(_CHECK_BYTES)
        if len(check_of_frame) < _CHECK_BYTES:
            return None
        chain = zlib.crc32(frame, self.chain)
        if chain != int.from_bytes(check_of_frame, "little"):
            return "no record begins there, or records before it are missing"
        mark, head_length, length, check = _FRAME.unpack(frame)
        if mark != _MARK:
            return "another version of cudasync wrote it"
        if file.tell() + head_length + length > size:
            return None
        head, body = file.read(head_length), file.read(length)
        if zlib.crc32(body, zlib.crc32(head)) != check:
            return "its checksum does not match"
        self.end, self.chain = file.tell(), chain
        told, arrays, at = json.loads(head), [], 0
        for each in told["arrays"]:
            kind, shape = np.dtype(each["dtype"]), tuple(each["shape"])
            count = int(np.prod(shape, dtype=np.int64))
            arrays.append(np.frombuffer(body, kind, count, at).reshape(shape))
            at += count * kind.itemsize
        return told["about"], arrays
