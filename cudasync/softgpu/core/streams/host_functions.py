"""Cellar. Host functions: native functions that a stream calls, on threads of their own.

As with a real driver, they run beside the program, so a blocking function holds only its stream.
A thread is made when all others are busy, and reused. A function that never blocks (`sem_post`)
is called in place, because a change of threads costs far more.
"""

from __future__ import annotations

import ctypes
from queue import SimpleQueue
from threading import Thread, get_ident
from typing import TYPE_CHECKING

from cudasync.softgpu.core.driver_types.result_codes import SUCCESS
from cudasync.softgpu.core.driver_types.virtual_clock import HOST_FUNCTION_US
from cudasync.softgpu.core.streams.commands import Command, Step, Touched

if TYPE_CHECKING:
    from cudasync.softgpu.core.scheduling.executor import Executor
    from cudasync.softgpu.core.streams.streams import Stream

_NATIVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_NATIVE_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def _address_of(name: str) -> int:
    function = getattr(ctypes.CDLL(None), name)
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class HostFunctions:
    """The threads in which host functions run."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._work: SimpleQueue[HostFunction] = SimpleQueue()
        self._idle = 0
        self._never_block = frozenset({_address_of("sem_post")})

    def start(self, command: HostFunction) -> Step:
        """Call a function that cannot block in place; hand any other to a thread."""
        if command.function in self._never_block:
            command.call()
            return Step.DONE
        with self._executor.lock:
            needs_thread = not self._idle
            self._idle -= not needs_thread
        if needs_thread:
            Thread(target=self._serve, name="cudasync host function", daemon=True).start()
        self._work.put(command)
        return Step.ELSEWHERE

    def never_blocks(self, command: HostFunction) -> bool:
        """True for functions that are called in place: they touch no device memory."""
        return command.function in self._never_block

    def _serve(self) -> None:
        self._executor.host_function_threads.add(get_ident())
        while True:
            command = self._work.get()
            try:
                command.call()
            finally:
                self._executor.finish_elsewhere(command, self._became_idle)

    def _became_idle(self) -> None:
        self._idle += 1


class HostFunction(Command):
    """cuLaunchHostFunc."""

    __slots__ = ("function", "user_data", "workers")

    def __init__(
        self, stream: Stream, function: int, user_data: int, workers: HostFunctions
    ) -> None:
        super().__init__(stream)
        self.function = function
        self.user_data = user_data
        self.workers = workers

    def run(self) -> Step:
        return self.workers.start(self)

    def call(self) -> None:
        """Call the function, without the GIL if it is native."""
        _NATIVE(self.function)(self.user_data)

    @property
    def cost_us(self) -> float:
        return HOST_FUNCTION_US

    def touched(self) -> Touched | None:
        return Touched() if self.workers.never_blocks(self) else None

    def describe(self) -> str:
        return f"host function {self.function:#x}"


class Callback(HostFunction):
    """cuStreamAddCallback, the older form, which also receives the stream and a status."""

    __slots__ = ()

    def call(self) -> None:
        _NATIVE_CALLBACK(self.function)(self.stream.handle, SUCCESS, self.user_data)

    def describe(self) -> str:
        return f"callback {self.function:#x}"
