"""Floor 5. One file of arrays, which is written whole or not at all, and refused if damaged.

The file has a line of JSON (a description, and each array's dtype and shape), the bytes of the
arrays, and SHA-256 of all before. A temporary file is written and renamed, so a full disk leaves
the old file whole. Its writer holds a lock on it. So the next writer of the same file knows the
temporary files that a killed writer left, and deletes them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from contextlib import suppress
from typing import Any

import numpy as np

_DIGEST = hashlib.sha256().digest_size
_PREFIX = ".cudasync-"


def save(path: Any, about: dict[str, Any], arrays: list[np.ndarray[Any, Any]]) -> None:
    """Replace the file at `path`; on OSError the old file is whole."""
    told = [{"dtype": each.dtype.str, "shape": each.shape} for each in arrays]
    head = json.dumps({"cudasync": 1, "about": about, "arrays": told}).encode() + b"\n"
    place = os.path.abspath(os.fspath(path))
    digest = hashlib.sha256()
    beside, handle = "", -1
    try:
        delete_leftovers(place)
        handle, beside = _temporary(place)
        for part in (memoryview(head), *(bytes_of(each).data for each in arrays)):
            digest.update(part)
            write_all(handle, part)
        write_all(handle, memoryview(digest.digest()))
        os.fsync(handle)
        os.replace(beside, place)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(beside)
        if isinstance(error, OSError):
            told_why = f"{error.strerror}: {place} was not written and is unchanged"
            raise OSError(error.errno, told_why) from error
        raise
    finally:
        if handle >= 0:
            os.close(handle)


def load(path: Any) -> tuple[dict[str, Any], list[np.ndarray[Any, Any]]]:
    """The arguments of `save`; ValueError for a damaged file, or a file of another kind."""
    with open(path, "rb") as file:
        content = file.read()
    body, digest = content[:-_DIGEST], content[-_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError(
            f"{path} is damaged, truncated, or not written by cudasync: give another file"
        )
    line, _, rest = body.partition(b"\n")
    head = json.loads(line)
    arrays, at = [], 0
    for each in head["arrays"]:
        kind, shape = np.dtype(each["dtype"]), tuple(each["shape"])
        count = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(rest, kind, count, at).reshape(shape).copy())
        at += count * kind.itemsize
    return head["about"], arrays


def delete_leftovers(path: str) -> None:
    """Delete the temporary files of killed writers of files whose paths begin with `path`."""
    folder, name = os.path.split(path)
    for each in os.listdir(folder):
        if each.startswith(_PREFIX + name):
            with suppress(OSError):
                handle = os.open(os.path.join(folder, each), os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(os.path.join(folder, each))
                finally:
                    os.close(handle)


def bytes_of(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bytes of an array in C order, as an array of one dimension."""
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def write_all(handle: int, x: memoryview) -> None:
    """Write all of `x`, however little the system takes at once."""
    done = 0
    while done < len(x):
        done += os.write(handle, x[done:])


def _temporary(place: str) -> tuple[int, str]:
    """A new locked file beside `place`, and its path."""
    folder, name = os.path.split(place)
    while True:
        handle, beside = tempfile.mkstemp(dir=folder, prefix=f"{_PREFIX}{name}-")
        # A file system without locks has no leftovers that another writer may delete.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another writer may have deleted it before the lock.
        if os.fstat(handle).st_nlink:
            return handle, beside
        os.close(handle)
