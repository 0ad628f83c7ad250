"""Floor 0. Compiled code that is kept on disk for later processes.

`CUDASYNC_SOFTGPU_CACHE` names the folder; 0 keeps nothing. By default the folder is in the user's
cache folder. A file's name is the hash of all that its code depends on. The file begins with a
digest of name and code, so a damaged, truncated or renamed file is not found. Found code is run, so
the user must own the folder, and nobody else may have write access to it.

Nothing here fails: code that cannot be kept is compiled again.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

try:
    # hashlib exports the same function, but loads OpenSSL for others: that takes many times longer.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

VARIABLE = "CUDASYNC_SOFTGPU_CACHE"
# The most files that are kept: at this number the older half is deleted.
_MOST = 4096
_DIGEST_BYTES = 32


def key_of(*parts: str) -> str:
    """The name for code that depends on exactly these texts."""
    lengths = ",".join(str(len(part)) for part in parts)
    return blake2b("\n".join((lengths, *parts)).encode(), digest_size=_DIGEST_BYTES).hexdigest()


class KeptCode:
    """Code of one kind: `name` is its folder below cudasync/ in the user's cache folder."""

    def __init__(self, name: str) -> None:
        self._name = name
        # The environment's values, and their folder. Making a Path is slow, and a kept Path caches
        # its text.
        self._latest: tuple[object, Path | None] = (None, None)

    def folder(self) -> Path | None:
        """The folder of kept code; None if no code is to be kept."""
        said = tuple(map(os.environ.get, (VARIABLE, "XDG_CACHE_HOME", "HOME")))
        latest, found = self._latest
        if latest != said:
            found = self._folder(*said[:2])
            self._latest = said, found
        return found

    def _folder(self, named: str | None, caches: str | None) -> Path | None:
        if named == "0":
            return None
        if named:
            return Path(named)
        try:
            return (Path(caches) if caches else Path.home() / ".cache") / "cudasync" / self._name
        except RuntimeError:
            return None

    def find(self, key: str) -> bytes | None:
        """The code that was kept under this name, or None."""
        where = self.folder()
        if where is None or not _is_own(where):
            return None
        try:
            number = os.open(f"{where}/{key}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(number, "rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None
                digest, code = file.read(_DIGEST_BYTES), file.read()
        except OSError:
            return None
        return code if digest == _digest(key, code) else None

    def keep(self, key: str, code: bytes) -> None:
        """Keep code under this name, if possible; other processes see all of it or nothing."""
        where = self.folder()
        if where is None:
            return
        try:
            where.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_own(where):
                return
            _make_room(where)
            number, unfinished = tempfile.mkstemp(dir=where)
            try:
                with open(number, "wb") as file:
                    file.write(_digest(key, code) + code)
                os.replace(unfinished, where / key)
            except BaseException:
                os.unlink(unfinished)
                raise
        except OSError:
            return


def _digest(key: str, code: bytes) -> bytes:
    return blake2b(key.encode() + code, digest_size=_DIGEST_BYTES).digest()


def _is_own(where: Path) -> bool:
    """Whether this user owns a folder, and nobody else may write to it."""
    try:
        found = os.stat(where)
    except OSError:
        return False
    others = stat.S_IWGRP | stat.S_IWOTH
    return found.st_uid == os.geteuid() and not found.st_mode & others


def _make_room(where: Path) -> None:
    names = os.listdir(where)
    if len(names) < _MOST:
        return
    for path in sorted(map(where.joinpath, names), key=_age)[: len(names) // 2]:
        path.unlink(missing_ok=True)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
