"""The arrays of each library on the device, written as programs of each library write them.

CuPy and PyTorch bring NVIDIA's runtime library, so they need a real GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import cudasync as cs
from bench.harness import machine
from cudasync import xp

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.harness.measurement import Session


@dataclass(frozen=True)
class OnDevice:
    """A library: `made` puts values on the device, `values` takes them back, `wait` waits for all.

    `functions` has `exp` and `sum`.
    """

    name: str
    made: Callable[[np.ndarray], Any]
    values: Callable[[Any], np.ndarray]
    wait: Callable[[], object]
    functions: Any


def cudasync() -> OnDevice:
    return OnDevice("cudasync", cs.array, lambda array: np.asarray(array.numpy()), cs.waitall, xp)


def cupy() -> OnDevice:
    import cupy

    return OnDevice("CuPy", cupy.asarray, cupy.asnumpy, cupy.cuda.Device().synchronize, cupy)


def torch() -> OnDevice:
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU")
    torch.set_grad_enabled(False)
    return OnDevice(
        "torch",
        lambda values: torch.from_numpy(values.copy()).cuda(),
        lambda tensor: tensor.cpu().numpy(),
        torch.cuda.synchronize,
        torch,
    )


def installed(session: Session, *, is_software: bool) -> list[OnDevice]:
    """cudasync, and the libraries that are installed and find a GPU; the report names the rest."""
    found = [cudasync()]
    for package, make in (("cupy", cupy), ("torch", torch)):
        name = f"{package}, on the device"
        if is_software:
            session.absent[name] = "needs a real GPU"
            continue
        try:
            found.append(make())
        except Exception as error:
            # Any error of an unknown library must not stop the others.
            session.absent[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        session.versions[package] = machine.installed(package) or "of unknown version"
    return found
