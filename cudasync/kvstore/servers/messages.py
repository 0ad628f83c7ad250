"""Floor 5. Questions and answers as bytes: a head of JSON, and the arrays that it describes.

Nothing that arrives is run: there is no code in a message.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.kvstore.errors import ServerLost

if TYPE_CHECKING:
    from cudasync.kvstore.servers.server import Answer, Question, Server

    Value = np.ndarray[Any, Any]

# What a server may raise for a worker to have; anything else is a bug and comes as RuntimeError.
_RAISED = {each.__name__: each for each in (KeyError, IndexError, TypeError, ValueError)}


def head_of(told: dict[str, Any], arrays: list[Value]) -> bytes:
    """The head of a message with these arrays."""
    return json.dumps({**told, "arrays": [[x.dtype.str, x.shape] for x in arrays]}).encode()


def told_by(head: bytes) -> tuple[dict[str, Any], list[tuple[np.dtype[Any], tuple[int, ...]]]]:
    """What a head tells, and dtype and shape of each array that comes after it."""
    told = json.loads(head)
    return told, [(np.dtype(dtype), tuple(shape)) for dtype, shape in told.pop("arrays")]


def answered(server: Server, question: Question) -> tuple[dict[str, Any], list[Value]]:
    """A server's answer as plain values; what it raises is one, too."""
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
    """The answer, in the worker; raises what the server raised."""
    if "error" not in told:
        return told["found"], arrays
    kind, text, number = told["error"]
    if kind == "ServerLost":
        raise ServerLost(server, text)
    if kind == "OSError":
        raise OSError(number, f"server {server}: {text}")
    raise _RAISED.get(kind, RuntimeError)(f"server {server}: {text}")
