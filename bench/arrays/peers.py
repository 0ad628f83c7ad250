"""Additions of tiny arrays on the CPU, written as programs of each library write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

import cudasync as cs
from bench.harness import machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.harness.measurement import Session


class OnCpu(Protocol):
    """The interface of each library for bench_arrays."""

    name: str

    def array(self, values: np.ndarray) -> Any:
        """An array of this library."""

    def result(self, array: Any) -> np.ndarray:
        """The array's values; waits for them."""


class NumPy:
    name = "numpy"

    def array(self, values: np.ndarray) -> Any:
        return values.copy()

    def result(self, array: Any) -> np.ndarray:
        return array


class Cudasync:
    name = "cudasync, device='cpu'"

    def array(self, values: np.ndarray) -> Any:
        return cs.array(values, device="cpu")

    def result(self, array: Any) -> np.ndarray:
        return array.numpy()


class Torch:
    """PyTorch's eager mode, with one thread."""

    name = "torch, device='cpu'"

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        self._torch = torch

    def array(self, values: np.ndarray) -> Any:
        return self._torch.tensor(values)

    def result(self, array: Any) -> np.ndarray:
        return array.numpy()


def installed(session: Session) -> list[OnCpu]:
    """The other libraries. The report names those that are not installed."""
    try:
        found = Torch()
    except ImportError as error:
        session.absent[Torch.name] = f"{type(error).__name__}: {error}".splitlines()[0]
        return []
    session.versions["torch"] = machine.installed("torch") or "of unknown version"
    return [found]


def chain(library: OnCpu, x: Any, y: Any, ops: int) -> Callable[[], np.ndarray]:
    """Each addition uses the previous result. Only the last result is waited for."""

    def run() -> np.ndarray:
        z = x
        for _ in range(ops):
            z = z + y
        return library.result(z)

    return run


def one_by_one(library: OnCpu, x: Any, y: Any, ops: int) -> Callable[[], np.ndarray]:
    """Wait for each result before the next addition."""

    def run() -> np.ndarray:
        for _ in range(ops):
            found = library.result(x + y)
        return found

    return run
