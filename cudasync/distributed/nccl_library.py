"""Floor 5. The one place that calls nccl4py: its low-level calls, and one communicator of NCCL's.

A communicator does not block, so a call may return "in progress". The state is then polled until
the call is over, and nothing else is called meanwhile (NCCL's manual, "Creating a communicator with
options"). `ncclCommAbort` ends a communicator that has failed, from any thread; `ncclCommDestroy`
may block.
"""

from __future__ import annotations

import importlib
import time
from collections import deque
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.distributed.errors import BackendUnavailable, CollectiveTimeout, DistError, RankFailed
from cudasync.driver.probe import chosen
from cudasync.errors import CudasyncError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_HINT = "pip install 'cudasync[nccl]'"
_ID_BYTES = 128
# ncclResult_t: an error of a remote rank or its network, and a call that is not over yet.
_REMOTE_ERROR, _IN_PROGRESS = 6, 7
_PAUSE_S = 1e-4
# ncclDataType_t and ncclRedOp_t, by NumPy's names and ours; bool as bytes of 0 and 1.
_TYPES = {
    "int8": 0,
    "uint8": 1,
    "bool": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
}
BYTES = _TYPES["uint8"]
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "mean": 4}


@cache
def library() -> Any:
    """The module `nccl.bindings.nccl`. BackendUnavailable without the module, libnccl or a GPU."""
    driver = None
    try:
        driver, why = chosen()
    except CudasyncError as error:
        why = str(error)
    if driver != "cuda":
        raise BackendUnavailable(
            "nccl",
            f"NCCL needs NVIDIA GPUs, and this process uses none ({why})",
            hint='use the backend "local" or "mpi", and the stores "device" or "dist_sync"',
        )
    try:
        found = importlib.import_module("nccl.bindings.nccl")
        found.get_version()
    except (ImportError, RuntimeError, OSError) as error:
        raise BackendUnavailable("nccl", str(error).strip(), hint=_HINT) from None
    return found


def about() -> str:
    """The version of NCCL. BackendUnavailable without NCCL."""
    version = library().get_version()
    return f"NCCL {version // 10000}.{version // 100 % 100}.{version % 100}"


def type_of(dtype: np.dtype[Any]) -> int:
    """NCCL's number of a dtype that it computes with; TypeError for any other dtype."""
    if dtype.name not in _TYPES:
        raise TypeError(f"NCCL does not compute with {dtype}: it takes {', '.join(_TYPES)}")
    return _TYPES[dtype.name]


def new_id() -> np.ndarray[Any, Any]:
    """The id of a new communicator. One rank makes it, and all ranks need it."""
    return np.frombuffer(bytearray(memoryview(library().get_unique_id())), np.uint8)


class Link:
    """A process's handles of a communicator, one a rank; `broken_by` is the first failure."""

    def __init__(
        self,
        size: int,
        ranks: Sequence[tuple[int, Any]],
        identity: np.ndarray[Any, Any],
        timeout: float,
    ) -> None:
        """Make handles for `ranks`, the ranks of this process with their devices.

        Blocks until all ranks have called it; CollectiveTimeout.
        """
        self._nccl = library()
        self.timeout = timeout
        self.broken_by: BaseException | None = None
        self._calls = 0
        self._handles: list[Any] = []
        # Handles that were not aborted or destroyed.
        self._living: deque[Any] = deque()
        with self._together(len(ranks)):
            for rank, device in ranks:
                device.context.enter_anew()
                config = self._nccl.Config()
                config.blocking = 0
                words = bytearray(identity[:_ID_BYTES].tobytes())
                handle = self._nccl.comm_init_rank_scalable(size, rank, 1, words, config.ptr)
                self._handles.append(handle)
                self._living.append(handle)
        self._settle("init")

    def do(self, name: str, calls: Sequence[tuple[int, Callable[[Any, Any], object]]]) -> None:
        """Enqueue calls, each with the number of its handle; several calls form one group.

        A call takes the library and the handle. All calls were checked before. If one fails
        nevertheless, the communicator is aborted, because the other ranks wait for this call.
        """
        self.raise_if_broken()
        try:
            with self._together(len(calls)):
                for at, call in calls:
                    call(self._nccl, self._handles[at])
            self._settle(name)
        except BaseException as error:
            self.abort(error)
            raise
        self._calls += 1

    @contextmanager
    def _together(self, count: int) -> Iterator[None]:
        """An NCCL group around several calls. If one raises, nothing of the group is launched."""
        if count > 1:
            self._nccl.group_start()
        try:
            yield
        except BaseException as error:
            # Abort before the group ends. The group must end: it is the thread's, not the
            # communicator's.
            self.abort(error)
            if count > 1:
                with suppress(RuntimeError):
                    self._nccl.group_end()
            raise
        if count > 1:
            self._nccl.group_end()

    def look(self, name: str) -> None:
        """Abort if NCCL reports a failure since the last call."""
        for handle in self._handles:
            if self.broken_by is not None:
                return
            state = int(self._nccl.comm_get_async_error(handle))
            if state not in (0, _IN_PROGRESS):
                self.abort(self._error(name, state, handle))

    def abort(self, reason: BaseException) -> None:
        """End calls under way, also on the devices, without waiting for other ranks. Any thread."""
        # One thread alone gets each handle: deque.pop is one C call.
        with suppress(IndexError):
            while True:
                handle = self._living.pop()
                self.broken_by = self.broken_by or reason
                self._nccl.comm_abort(handle)

    def late(self, name: str) -> CollectiveTimeout:
        """The error of a call that is past its deadline."""
        return CollectiveTimeout(name, self._calls, self.timeout)

    def close(self) -> None:
        """End the communicator in good order, with all other ranks; abort it past the deadline."""
        if self.broken_by is not None:
            return
        with self._together(len(self._handles)):
            for handle in self._handles:
                self._nccl.comm_finalize(handle)
        self._settle("close")
        with suppress(IndexError):
            while True:
                self._nccl.comm_destroy(self._living.popleft())

    def raise_if_broken(self) -> None:
        """Raise the first failure, if any."""
        if self.broken_by is not None:
            raise self.broken_by

    def _settle(self, name: str) -> None:
        """Wait until the last call is enqueued everywhere; at the deadline abort and raise."""
        end = time.monotonic() + self.timeout
        for handle in self._handles:
            while (state := int(self._nccl.comm_get_async_error(handle))) == _IN_PROGRESS:
                if time.monotonic() > end:
                    error = self.late(name)
                    self.abort(error)
                    raise error
                time.sleep(_PAUSE_S)
            if state:
                raise self._error(name, state, handle)

    def _error(self, name: str, state: int, handle: Any) -> DistError:
        said = f"{self._nccl.get_error_string(state)}; {self._nccl.get_last_error(handle)}"
        if state == _REMOTE_ERROR:
            return RankFailed(name, (), said)
        return DistError(f"{name}: NCCL says {said}")
