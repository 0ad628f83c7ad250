"""A chain of ten matrix products, each copied to the CPU: at the end, or as soon as it is ready.

A copy needs only its own product, so it can run while the GPU computes the next product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cudasync as cs
from cudasync.experiments.experiment import Experiment

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    Matrix = np.ndarray[Any, Any]


def prepare(size: int) -> tuple[cs.Array]:
    rng = cs.random.Generator(seed=3)
    return (rng.normal(0, size**-0.5, (size, size), device=0),)


def compute(x: cs.Array) -> list[cs.Array]:
    powers = [x @ x]
    for _ in range(9):
        powers.append(powers[-1] @ x)
    return powers


def compute_then_copy(x: cs.Array) -> list[cs.Array]:
    powers = compute(x)
    cs.waitall()
    return [power.to_device("cpu") for power in powers]


def copy_as_ready(x: cs.Array) -> list[cs.Array]:
    power, copies = x, []
    for _ in range(10):
        power = power @ x
        copies.append(power.to_device("cpu"))
    return copies


def in_numpy(x: Matrix) -> list[Matrix]:
    powers = [x @ x]
    for _ in range(9):
        powers.append(powers[-1] @ x)
    return powers


def _expected_ms(ms: Mapping[str, float]) -> float:
    """The time of all products and of the last copy; the other copies overlap with products."""
    copying_ms = ms["compute, then copy"] - ms["compute"]
    return ms["compute"] + copying_ms / 10


EXPERIMENT = Experiment(
    name="copying",
    title="ten products in a chain, copied to the CPU",
    expectation="each product is copied while the next is computed: only the last copy takes "
    "extra time",
    clock="device",
    devices=1,
    size=512,
    prepare=prepare,
    parts={"compute": compute},
    ways={"compute, then copy": compute_then_copy, "copy as ready": copy_as_ready},
    expected_ms=_expected_ms,
    reference=in_numpy,
)
