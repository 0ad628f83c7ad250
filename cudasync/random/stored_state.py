"""Floor 4, random. The state of a generator in memory: its seed, and its counter.

Draws of a recording read it and advance it, as nodes of the graph. So a launch draws the numbers
that come next at that time, and a loop draws in each round. There is one such memory for all graphs
of a generator, on the device where a recording first drew; draws elsewhere read a copy of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.array.copies.copy import copy
from cudasync.array.dtypes.supported import UINT64
from cudasync.engine.current import engine as current_engine
from cudasync.errors import ClosedError
from cudasync.graph.launch_state import register
from cudasync.graph.node import Node
from cudasync.xp.initial_contents import of_host, to_overwrite

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from cudasync.array.array import Array
    from cudasync.array.elementwise.operation import Operation
    from cudasync.locks import Lock


def is_recording() -> bool:
    """True if what this thread pushes is recorded."""
    engine: Any = current_engine()
    return bool(engine.mode == "recording")


class StoredState:
    """Two numbers of 64 bits on a device or the CPU. The generator's lock is held in all calls."""

    def __init__(self, lock: Lock, device: Any, on_host: Callable[[], tuple[int, int]]) -> None:
        self.lock = lock
        # True while the counter is here, and False while it is on the host.
        self.is_current = False
        self._on_host = on_host
        self._device = device
        self._home = to_overwrite((2,), UINT64, device)
        # Copies for draws on other devices, and on the CPU.
        self._copies: dict[Any, Array] = {}
        register(self)

    @property
    def is_lost(self) -> bool:
        """True once a reset of its device has taken it."""
        return _is_lost(self._home)

    def memory(self) -> tuple[int, int]:
        return self._home.region[:2]

    def bring(self) -> None:
        """Push what lets a launch find the state here; it stays here."""
        if not self.is_current:
            self._home_is(*self._on_host())
            self.is_current = True

    def fetched(self) -> tuple[int, int]:
        """Wait for the state, which is on the host from now on."""
        seed, counter = self._home.numpy().tolist()
        self.is_current = False
        return seed, counter

    def record(self, seed: int, counter: int) -> None:
        """Record that it becomes this."""
        for at, value in enumerate((seed, counter)):
            self._home[at : at + 1] = np.uint64(value)
        self._keep()

    def draw(
        self, operation: Operation, numbers: tuple[float, ...], target: Array, frame: FrameType
    ) -> None:
        """Push a draw of the next numbers to `target`, and the advance of the counter."""
        here = self._home
        if target.device != here.device:
            known = self._copies.get(target.device)
            if known is None or _is_lost(known):
                known = to_overwrite((2,), UINT64, target.device)
                self._copies[target.device] = known
            copy(known, here)
            here = known
        operation.into((here[0], here[1], *numbers), target, frame)
        counter = self._home[1:]
        counter += np.uint64(target.size)
        self._keep()

    def _keep(self) -> None:
        """Let the graph keep this object, which knows where the state is."""
        engine: Any = current_engine()
        if engine.mode == "recording":
            last = engine.nodes[-1]
            assert isinstance(last, Node)
            last.keep(self)

    def _home_is(self, seed: int, counter: int) -> None:
        copy(self._home, of_host(np.array([seed, counter], np.uint64), None, self._device))


def _is_lost(array: Array) -> bool:
    try:
        array.form.raise_if_over()
    except ClosedError:
        return True
    return False
