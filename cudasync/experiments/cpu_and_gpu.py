"""Ten matrix products on the CPU and ten on a GPU: one after the other, and together.

An array on the CPU has the same operators as an array on a GPU, and they also return at once: NumPy
computes the products on a thread of the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cudasync as cs
from cudasync.experiments.experiment import Experiment

if TYPE_CHECKING:
    import numpy as np

    Matrix = np.ndarray[Any, Any]


def prepare(size: int) -> tuple[cs.Array, cs.Array]:
    rng = cs.random.Generator(seed=2)
    h = rng.normal(0, size**-0.5, (size, size), device="cpu")
    x = rng.normal(0, size**-0.5, (size, size), device=0)
    return h, x


def ten_products(x: cs.Array) -> list[cs.Array]:
    return [x @ x for _ in range(10)]


def one_after_the_other(h: cs.Array, x: cs.Array) -> list[cs.Array]:
    on_the_gpu = ten_products(x)
    cs.waitall()
    on_the_cpu = ten_products(h)
    return on_the_cpu + on_the_gpu


def together(h: cs.Array, x: cs.Array) -> list[cs.Array]:
    on_the_gpu = ten_products(x)
    on_the_cpu = ten_products(h)
    return on_the_cpu + on_the_gpu


def in_numpy(h: Matrix, x: Matrix) -> list[Matrix]:
    return [h @ h] * 10 + [x @ x] * 10


EXPERIMENT = Experiment(
    name="cpu-and-gpu",
    title="ten matrix products on the CPU and ten on a GPU",
    expectation="CPU and GPU compute at the same time",
    clock="wall",
    devices=1,
    size=512,
    prepare=prepare,
    parts={"CPU": lambda h, x: ten_products(h), "GPU": lambda h, x: ten_products(x)},
    ways={"one after the other": one_after_the_other, "together": together},
    reference=in_numpy,
)
