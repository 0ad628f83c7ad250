"""Floor 5. One file of arrays, which is written whole or not at all, and refused if damaged.

The file has a line of JSON (a description, and each array's dtype and shape), the bytes of the
arrays, and SHA-256 of all before. A temporary file is written and renamed, so a full disk leaves
the old file whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from typing import Any

import numpy as np

_DIGEST = hashlib.sha256().digest_size


def save(path: Any, about: dict[str, Any], arrays: list[np.ndarray[Any, Any]]) -> None:
    """Replace the file at `path`; on OSError the old file is whole."""
    told = [{"dtype": each.dtype.str, "shape": each.shape} for each in arrays]
    head = json.dumps({"cudasync": 1, "about": about, "arrays": told}).encode() + b"\n"
    place = os.path.abspath(os.fspath(path))
    digest = hashlib.sha256()
    beside = ""
    try:
        handle, beside = tempfile.mkstemp(dir=os.path.dirname(place), prefix=".cudasync-")
        with os.fdopen(handle, "wb") as file:
            for part in (head, *(np.ascontiguousarray(each).tobytes() for each in arrays)):
                digest.update(part)
                file.write(part)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, place)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(beside)
        if isinstance(error, OSError):
            told_why = f"{error.strerror}: {place} was not written and is unchanged"
            raise OSError(error.errno, told_why) from error
        raise


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
