"""The tower. How a process is asked from outside what goes on in it: `python -m cudasync top PID`.

With `CUDASYNC_TOP=1` in its environment a process has a thread that waits on a socket, and answers
who connects with one look. The socket's name is in Linux's abstract namespace: it is no file, no
network reaches it, and it goes with its process however that ends. That namespace has no
permissions, so both sides ask the kernel who is at the other end.
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
from cudasync.profile.looking import look

if TYPE_CHECKING:
    from cudasync.profile.looking import Look

# Of both sides: for the answer, and for the asker to take it.
PATIENCE_S = 10.0
_PIECE = 1 << 16
# Before asking again for what the system refused: it is out of descriptors.
_PAUSE_S = 1.0
# pid, uid and gid of who is at the other end.
_WHO = struct.Struct("3i")


class NobodyAnswers(CudasyncError):
    """There is no such process of this user that may be asked."""


def ask(pid: int) -> Look:
    """One look at the process `pid` of this user.

    Raises CudasyncError, which says what to do, for a process that can not be asked, or that does
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
            raise CudasyncError(f"who answers for process {pid} is process {owner} of user {uid}")
        try:
            answer = json.loads(_all_of(mine) or "null")
        except TimeoutError:
            raise CudasyncError(
                f"process {pid} does not answer: it is stopped, or in a call that holds the GIL"
            ) from None
        except ConnectionError:
            answer = None
    if answer is None:
        raise CudasyncError(f"process {pid} ended before it answered")
    if "error" in answer:
        raise CudasyncError(f"process {pid} could not look: {answer['error']}")
    found: Look = answer
    return found


def _all_of(mine: socket.socket) -> bytes:
    """What comes until the other end closes, within the patience of one ask."""
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
    # Behind the name, in parentheses: the state. Its parent has not been told of this one's end.
    if stat.rpartition(")")[2].split()[0] in "ZX":
        return f"process {pid} has ended"
    if owner != os.getuid():
        return f"process {pid} is another user's"
    return (
        f"process {pid} can not be asked: start it with CUDASYNC_TOP=1 in its environment"
        " (it has to use cudasync, and to be in the same container)"
    )


def answer() -> None:
    """Let this process be asked from here on, if its environment has CUDASYNC_TOP=1, and the
    processes that it forks.

    Raises ValueError for another value than 1 and 0.
    """
    value = os.environ.get("CUDASYNC_TOP") or "0"
    if value not in ("0", "1"):
        raise ValueError(
            f"CUDASYNC_TOP={value}: 1 lets `cudasync top` ask this process, 0 does not"
        )
    if value == "1" and not _ANSWERING:
        os.register_at_fork(after_in_child=_begin)
        _begin()


# The socket of this process, once it can be asked.
_ANSWERING: list[socket.socket] = []


def _begin() -> None:
    # A forked child has its parent's socket, and not the thread.
    while _ANSWERING:
        _ANSWERING.pop().close()
    mine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _ANSWERING.append(mine)
    try:
        mine.bind(_name(os.getpid()))
    except OSError as error:
        warnings.warn(f"top can not ask process {os.getpid()}: {error}", stacklevel=2)
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
        # The thread is to answer the next one, too.
        made = {"error": repr(error)}
    return json.dumps(made).encode()


def _other_end(mine: socket.socket) -> tuple[int, int]:
    """Process and user at the other end."""
    pid, uid, _ = _WHO.unpack(mine.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _WHO.size))
    return pid, uid


def _name(pid: int) -> str:
    return f"\0cudasync-top-{os.getuid()}-{pid}"
