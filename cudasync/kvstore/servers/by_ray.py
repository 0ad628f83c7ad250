"""Floor 5. Servers that are actors of Ray, found by name: the one place that calls Ray.

With a folder Ray starts a dead actor again, which restores all its data from there. Ray's own token
stays on; a cluster that is started here listens on the loopback interface alone.
"""

from __future__ import annotations

import importlib
import ipaddress
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from cudasync.distributed.errors import BackendUnavailable
from cudasync.kvstore.errors import ServerLost, ServerUnavailable
from cudasync.kvstore.servers import messages
from cudasync.kvstore.servers.in_process import received
from cudasync.kvstore.servers.server import Server

if TYPE_CHECKING:
    import numpy as np

    from cudasync.kvstore.servers.exchange import Steps
    from cudasync.kvstore.servers.server import Question

    Value = np.ndarray[Any, Any]

_NAMESPACE = "cudasync"
# Ray's setting for "this machine alone", meant for other systems. Ray then takes the address
# 127.0.0.1 and binds its ports to it. Ray reads the setting when it is imported.
_ALONE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

# Ray puts objects of 100 KiB and more into its object store. Copying arrays up to this size into
# the message costs less than sending them as objects.
_SHORT_BYTES = 80 << 10


def library() -> Any:
    """Ray, connected to the program's cluster, else to RAY_ADDRESS, else to a cluster of our own.

    BackendUnavailable without Ray, and if a cluster of our own would be open to other machines.
    """
    is_ours = "RAY_ADDRESS" not in os.environ
    if is_ours and "ray" not in sys.modules:
        os.environ.setdefault(_ALONE, "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise BackendUnavailable("ray", str(error), hint="pip install 'cudasync[ray]'") from None
    if ray.is_initialized():
        return ray
    if not is_ours:
        ray.init(namespace=_NAMESPACE, log_to_driver=False, logging_level="warning")
        return ray
    is_closed = os.environ.get(_ALONE) == "0"
    if is_closed:
        _start(ray)
        is_closed = ipaddress.ip_address(ray.util.get_node_ip_address()).is_loopback
    if not is_closed:
        ray.shutdown()
        raise BackendUnavailable(
            "ray",
            "ray was imported before, so a cluster would listen on all interfaces",
            hint=f"create the store before importing ray, set {_ALONE}=0, or call ray.init()",
        )
    return ray


def _start(ray: Any) -> None:
    ray.init(
        address="local",
        namespace=_NAMESPACE,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="warning",
    )


class ServerActor:
    """A server in a process of Ray's, which answers one request at a time."""

    def __init__(self, number: int, count: int, folder: Any, silence_s: float) -> None:
        context = importlib.import_module("ray").get_runtime_context()
        is_restart = context.was_current_actor_reconstructed
        self._server = Server(number, count, folder, silence_s=silence_s, is_restart=is_restart)

    def ask(self, message: bytes, *arrays: Value) -> Any:
        """The answer's message, and long arrays, which Ray copies before the next request."""
        told, forms, at = messages.opened(message)
        given = list(arrays) if arrays else messages.arrays_in(message, forms, at)
        found, out = messages.answered(self._server, messages.question_of(told, given))
        answer, beside = _packed(messages.head_of(found, out), out)
        return (answer, *beside) if beside else answer

    def process(self) -> int:
        """The id of the actor's process."""
        return os.getpid()


class RayServers:
    """A worker's transport to `servers` actors, which are started unless they exist."""

    is_resumable = True

    def __init__(self, servers: int, group: str, folder: Any, silence_s: float) -> None:
        self._ray = ray = library()
        self.servers = servers
        self._is_kept = folder is not None
        made = ray.remote(ServerActor)
        self.actors = [
            made.options(
                name=f"{group}-{number}-of-{servers}",
                namespace=_NAMESPACE,
                get_if_exists=True,
                # An actor lives until the last worker leaves, not only as long as its creator.
                lifetime="detached",
                num_cpus=0,
                # Without a folder a restarted actor would be empty, and the loss would be hidden.
                max_restarts=-1 if self._is_kept else 0,
                # We repeat a request that may have been answered, with its number.
                max_task_retries=0,
            ).remote(number, servers, folder, silence_s)
            for number in range(servers)
        ]

    def steps(self, server: int, question: Question, into: Value | None, seconds: float) -> Steps:
        """As `Transport.steps`."""
        errors = self._ray.exceptions
        ended: list[tuple[Any, Exception | None]] = []
        end = time.monotonic() + seconds

        def wait() -> None:
            try:
                left = max(0.0, end - time.monotonic())
                ended.append((self._ray.get(asked, timeout=left), None))
            except Exception as error:
                ended.append((None, error))

        try:
            head = messages.head_of(messages.told_of(question), question.arrays)
            message, beside = _packed(head, question.arrays)
            asked = self.actors[server].ask.remote(message, *beside)
            while not ended:
                yield wait
            answer, failure = ended[0]
            if failure is not None:
                raise failure
        except errors.GetTimeoutError as error:
            raise ServerUnavailable(server, f"nothing came in {seconds:g} s") from error
        except errors.RayActorError as error:
            is_away = isinstance(error, errors.ActorUnavailableError)
            if getattr(error, "actor_init_failed", False):
                # The folder belongs to other servers, or is damaged, so a retry would fail, too.
                raise ServerLost(server, str(error).strip().splitlines()[-1]) from error
            if is_away or self._is_kept:
                raise ServerUnavailable(server, _first_line(error)) from error
            raise ServerLost(server, _first_line(error)) from error
        message, *got = (answer,) if isinstance(answer, bytes) else answer
        told, forms, at = messages.opened(message)
        got = got or messages.arrays_in(message, forms, at)
        found, out = messages.unwrapped(server, told, got)
        return found, received(out, into)

    def close(self, is_last: bool) -> None:
        """End the actors with the last worker; the files of a folder stay."""
        if is_last and self._ray.is_initialized():
            for each in self.actors:
                self._ray.kill(each)


def _packed(head: bytes, arrays: list[Value]) -> tuple[bytes, list[Value]]:
    """A message, with short arrays inside it, and the long arrays that go beside it.

    Ray moves bytes alone and arrays alone without extra pickling.
    """
    if sum(each.nbytes for each in arrays) <= _SHORT_BYTES:
        return messages.framed(head, arrays), []
    return messages.framed(head, []), arrays


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
