"""Floor 5. Optimizer states of servers in one file, in the format of a store of one process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from cudasync.kvstore import array_file
from cudasync.kvstore.optimizers import optimizer

if TYPE_CHECKING:
    from cudasync.kvstore.arguments import Key
    from cudasync.kvstore.servers.key_placement import Placed
    from cudasync.kvstore.servers.worker import Worker

    States = dict[Key, dict[str, Any]]


def save(path: Any, keys: dict[Key, Placed], worker: Worker, *, with_optimizer: bool) -> None:
    """Gather the states of all keys and write them; ValueError without an optimizer."""
    chosen = worker.optimizer()
    if chosen is None:
        raise ValueError("this store has no optimizer: call set_optimizer first")
    name, settings = chosen
    about: dict[str, Any] = {"keys": [], "optimizer": name}
    if with_optimizer:
        about["settings"] = settings
    arrays = []
    for key, placed in keys.items():
        parts = []
        for part in placed.parts:
            names, found = worker.connections[part.server].ask("states", key)
            parts.append(dict(zip(names, found, strict=True)))
        for each, first in parts[0].items():
            about["keys"].append([key, each])
            # Numbers are the same on all servers.
            is_number = first.shape == () and placed.shape != ()
            joined = np.concatenate([part[each].reshape(-1) for part in parts])
            arrays.append(first if is_number else joined.reshape(placed.shape))
    array_file.save(path, about, arrays)


def load(path: Any, keys: dict[Key, Placed], worker: Worker) -> tuple[list[Any], States]:
    """The optimizer of a file, its name and settings, and the states of each key.

    ValueError if the file does not fit.
    """
    about, arrays = array_file.load(path)
    name = about["optimizer"]
    chosen = [name, about["settings"]] if "settings" in about else worker.optimizer()
    if chosen is None or chosen[0] != name:
        raise ValueError(f"{path} was saved by the optimizer {name}: set this optimizer first")
    numbers = optimizer(*chosen).numbers
    found: States = {}
    for (key, each), array in zip(about["keys"], arrays, strict=True):
        if key not in keys:
            raise ValueError(
                f"{path} has key {key!r}, which this store does not have: init the key first"
            )
        shape = () if each in numbers else keys[key].shape
        if array.shape != shape or array.dtype != keys[key].dtype:
            raise ValueError(
                f"key {key!r} in {path} has another shape or dtype than the stored value"
            )
        found.setdefault(key, {})[each] = array
    return chosen, found


def send(chosen: list[Any], found: States, keys: dict[Key, Placed], worker: Worker) -> None:
    """Give the servers what `load` has found."""
    numbers = optimizer(*chosen).numbers
    worker.ask_all("set_optimizer", *chosen)
    for key, state in found.items():
        for part in keys[key].parts:
            own = [x if each in numbers else _own(x, part) for each, x in state.items()]
            worker.connections[part.server].ask("set_states", key, list(state), arrays=own)


def _own(array: Any, part: Any) -> Any:
    return array.reshape(-1)[part.start : part.stop].reshape(part.shape)


def as_path(folder: Any) -> str:
    """The folder's absolute path, for servers on this machine; the folder is made if needed."""
    path: str = os.path.abspath(os.fspath(folder))
    os.makedirs(path, exist_ok=True)
    return path
