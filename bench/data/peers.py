"""Ways to decode photographs into batches, and to call a function for each sample of many."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bench.data.photographs import decode
from bench.harness import machine
from cudasync import data

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bench.harness.measurement import Session


class Batches(Protocol):
    """The interface of each contender for bench_data: all batches of one pass."""

    name: str

    def batches(self, paths: list[str], size: int) -> Iterable[Any]:
        """NumPy arrays of (size, 224, 224, 3), or objects that convert to them without a copy."""


class Loop:
    name = "plain loop"

    def batches(self, paths: list[str], size: int) -> Iterator[np.ndarray]:
        for at in range(0, len(paths), size):
            yield np.stack([decode(each) for each in paths[at : at + size]])


class Cudasync:
    def __init__(self, workers: int, *, processes: bool = False) -> None:
        self.name = f"cudasync, {workers} {'processes' if processes else 'threads'}"
        self._how = {"workers": workers, "processes": processes}

    def batches(self, paths: list[str], size: int) -> Iterable[Any]:
        return data.source(paths).map(decode, **self._how).batch(size)


class Unordered:
    """The value of a second thread at that moment: photographs decoded, no batches, no order."""

    def __init__(self, workers: int) -> None:
        self.name = f"{workers} threads, order ignored"
        self.pool = ThreadPoolExecutor(workers)
        self._workers = workers

    def batches(self, paths: list[str], size: int) -> Iterator[Any]:
        parts = [paths[at :: self._workers] for at in range(self._workers)]
        list(self.pool.map(decode_all, parts))
        return iter(())


def decode_all(paths: list[str]) -> None:
    for each in paths:
        decode(each)


class _Dataset:
    """A map-style dataset. A pool of threads, if given, decodes a batch."""

    def __init__(self, paths: list[str], pool: ThreadPoolExecutor | None = None) -> None:
        self._paths, self._pool = paths, pool

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> np.ndarray:
        return decode(self._paths[index])

    def __getitems__(self, indices: list[int]) -> list[np.ndarray]:
        if self._pool is None:
            return [self[each] for each in indices]
        return list(self._pool.map(self.__getitem__, indices))


class Torch:
    """PyTorch's DataLoader, with processes that stay, or with threads inside its dataset."""

    def __init__(self, workers: int, *, processes: bool) -> None:
        import torch

        torch.set_num_threads(1)
        self._torch = torch
        self.name = f"torch DataLoader, {workers} {'processes' if processes else 'threads'}"
        self._workers = workers if processes else 0
        self._pool = None if processes else ThreadPoolExecutor(workers)
        self._loaders: dict[tuple[int, int], Any] = {}

    def batches(self, paths: list[str], size: int) -> Iterator[Any]:
        key = len(paths), size
        if key not in self._loaders:
            self._loaders[key] = self._torch.utils.data.DataLoader(
                _Dataset(paths, self._pool),
                batch_size=size,
                num_workers=self._workers,
                persistent_workers=self._workers > 0,
            )
        return iter(self._loaders[key])

    def close(self) -> None:
        self._loaders.clear()


def installed(session: Session, workers: int) -> list[Batches]:
    """The other libraries. The report names those that are not installed."""
    try:
        found = [Torch(workers, processes=True), Torch(workers, processes=False)]
    except ImportError as error:
        session.absent["torch DataLoader"] = f"{type(error).__name__}: {error}".splitlines()[0]
        return []
    session.versions["torch"] = machine.installed("torch") or "of unknown version"
    for each in found:
        session.closing.callback(each.close)
    return found
