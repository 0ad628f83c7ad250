"""Floor 5. Requests and answers as bytes: a head of JSON, and the arrays that it describes.

A message has no code, so nothing received is ever executed.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.kvstore.errors import ServerLost
from cudasync.kvstore.servers.server import Question

if TYPE_CHECKING:
    from cudasync.kvstore.servers.server import Answer, Server

    Value = np.ndarray[Any, Any]

# Errors of a server that a worker raises again. Any other error is a bug and becomes RuntimeError.
_RAISED = {each.__name__: each for each in (KeyError, IndexError, TypeError, ValueError)}


def head_of(told: dict[str, Any], arrays: list[Value]) -> bytes:
    """The head of a message with these arrays."""
    return json.dumps({**told, "arrays": [[x.dtype.str, x.shape] for x in arrays]}).encode()


def told_of(question: Question) -> dict[str, Any]:
    """The values in the head of a request."""
    return {"worker": question.worker, "name": question.name, "values": question.values}


def question_of(told: dict[str, Any], arrays: list[Value]) -> Question:
    """The request with this head."""
    return Question(told["worker"], told["name"], told["values"], arrays)


def told_by(head: bytes) -> tuple[dict[str, Any], list[tuple[np.dtype[Any], tuple[int, ...]]]]:
    """The values in a head, and dtype and shape of each array that follows it."""
    told = json.loads(head)
    return told, [(np.dtype(dtype), tuple(shape)) for dtype, shape in told.pop("arrays")]


def framed(head: bytes, arrays: list[Value]) -> bytes:
    """One message: a head, and the bytes of these arrays, which begin at a multiple of 16."""
    head += b" " * (-(4 + len(head)) % 16)
    parts = [np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in arrays]
    return b"".join((len(head).to_bytes(4, "little"), head, *(each.data for each in parts)))


def opened(
    message: bytes | bytearray,
) -> tuple[dict[str, Any], list[tuple[np.dtype[Any], tuple[int, ...]]], int]:
    """As `told_by`, and the offset of the arrays' bytes in the message."""
    end = 4 + int.from_bytes(message[:4], "little")
    return *told_by(bytes(message[4:end])), end


def arrays_in(
    message: bytes, forms: list[tuple[np.dtype[Any], tuple[int, ...]]], at: int
) -> list[Value]:
    """The arrays that begin at offset `at`, read-only."""
    found = []
    for dtype, shape in forms:
        size = math.prod(shape) * dtype.itemsize
        found.append(np.frombuffer(message[at : at + size], dtype).reshape(shape))
        at += size
    return found


def answered(server: Server, question: Question) -> tuple[dict[str, Any], list[Value]]:
    """A server's answer as plain values; an exception is an answer, too."""
    try:
        found, out = server.ask(question)
    except ServerLost as error:
        return {"error": ["ServerLost", error.reason, None]}, []
    except OSError as error:
        return {"error": ["OSError", error.strerror or str(error), error.errno]}, []
    except tuple(_RAISED.values()) as error:
        return {"error": [type(error).__name__, str(error.args[0]), None]}, []
    except Exception as error:  # A worker waits for an answer, and a server for the next question.
        return {"error": ["RuntimeError", f"{type(error).__name__}: {error}", None]}, []
    return {"found": found}, out


def unwrapped(server: int, told: dict[str, Any], arrays: list[Value]) -> Answer:
    """The answer, in the worker; raises the server's exception."""
    if "error" not in told:
        return told["found"], arrays
    kind, text, number = told["error"]
    if kind == "ServerLost":
        raise ServerLost(server, text)
    if kind == "OSError":
        raise OSError(number, f"server {server}: {text}")
    raise _RAISED.get(kind, RuntimeError)(f"server {server}: {text}")
