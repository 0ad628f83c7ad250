"""The tower. Queries of a process's state from another process: `python -m cudasync top PID`.

With `CUDASYNC_TOP=1` in its environment a process has a thread that waits on a socket, and answers
each connection with one look. The socket's name is in Linux's abstract namespace: it is no file, no
network reaches it, and it ends with its process in every case. That namespace has no permissions,
so both sides ask the kernel for the user at the other end.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudasync.errors import CudasyncError
from cudasync.profile.snapshot import look

if TYPE_CHECKING:
    from cudasync.profile.snapshot import Look

# The deadline of both sides: for the answer to come, and for the client to take it.
PATIENCE_S = 10.0
_PIECE = 1 << 16
# The pause before another attempt when the system is out of descriptors.
_PAUSE_S = 1.0
# pid, uid and gid of the process at the other end.
_WHO = struct.Struct("3i")


class NobodyAnswers(CudasyncError):
    """There is no such process of this user that answers queries."""


def ask(pid: int) -> Look:
    """One look at the process `pid` of this user.

    Raises CudasyncError, which says what to do, for a process that cannot be queried, or that does
    not answer within ten seconds.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mine:
        mine.settimeout(PATIENCE_S)
        try:
            mine.connect(_name(pid))
        except (ConnectionRefusedError, FileNotFoundError):
            raise NobodyAnswers(_why_not(pid)) from None
        owner, uid = _other_end(mine)
        if (owner, uid) != (pid, os.getuid()):
            raise CudasyncError(
                f"another process, {owner} of user {uid}, answers for process {pid}"
            )
        try:
            answer = json.loads(_all_of(mine) or "null")
        except TimeoutError:
            raise CudasyncError(
                f"process {pid} does not answer: it is stopped, or a call holds the GIL"
            ) from None
        except ConnectionError:
            answer = None
    if answer is None:
        raise CudasyncError(f"process {pid} ended before it answered")
    if "error" in answer:
        raise CudasyncError(f"process {pid} could not make its view: {answer['error']}")
    found: Look = answer
    return found


def _all_of(mine: socket.socket) -> bytes:
    """All bytes until the other end closes; TimeoutError after the deadline of one query."""
    pieces, until = [], time.monotonic() + PATIENCE_S
    while piece := mine.recv(_PIECE):
        pieces.append(piece)
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        mine.settimeout(left)
    return b"".join(pieces)


def _why_not(pid: int) -> str:
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return f"there is no process {pid}"
    # The state follows the name, which is in parentheses. A zombie's parent has not reaped it yet.
    if stat.rpartition(")")[2].split()[0] in "ZX":
        return f"process {pid} has ended"
    if owner != os.getuid():
        return f"process {pid} belongs to another user: run this as that user"
    return (
        f"process {pid} does not listen: start it with CUDASYNC_TOP=1 in its environment (it "
        f"must use cudasync and run in the same container)"
    )


def answer() -> None:
    """Answer queries in this process and its forks, if the environment has CUDASYNC_TOP=1.

    Raises ValueError for any value but 1 and 0.
    """
    value = os.environ.get("CUDASYNC_TOP") or "0"
    if value not in ("0", "1"):
        raise ValueError(
            f"CUDASYNC_TOP={value}: set it to 1 to let `cudasync top` watch this process, else to 0"
        )
    if value == "1" and not _ANSWERING:
        os.register_at_fork(after_in_child=_begin)
        _begin()


# The socket of this process, once it answers queries.
_ANSWERING: list[socket.socket] = []


def _begin() -> None:
    # A forked child inherits its parent's socket, but not the thread.
    while _ANSWERING:
        _ANSWERING.pop().close()
    mine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _ANSWERING.append(mine)
    try:
        mine.bind(_name(os.getpid()))
    except OSError as error:
        warnings.warn(f"`cudasync top` cannot watch process {os.getpid()}: {error}", stacklevel=2)
        return
    mine.listen()
    threading.Thread(target=_serve, args=(mine,), name="cudasync top", daemon=True).start()


def _serve(mine: socket.socket) -> None:
    while True:
        try:
            other, _ = mine.accept()
        except OSError:
            time.sleep(_PAUSE_S)
            continue
        with other, suppress(OSError):
            other.settimeout(PATIENCE_S)
            if _other_end(other)[1] == os.getuid():
                other.sendall(_look_as_json())


def _look_as_json() -> bytes:
    made: Any
    try:
        made = look()
    except Exception as error:
        # The thread must survive to answer the next query.
        made = {"error": repr(error)}
    return json.dumps(made).encode()


def _other_end(mine: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end."""
    pid, uid, _ = _WHO.unpack(mine.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _WHO.size))
    return pid, uid


def _name(pid: int) -> str:
    return f"\0cudasync-top-{os.getuid()}-{pid}"
