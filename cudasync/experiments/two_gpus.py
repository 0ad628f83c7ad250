"""Ten matrix products on each of two GPUs: one GPU after the other, and together.

No product needs another product, and the program waits only at `cs.waitall()`. So without this wait
the two GPUs compute at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cudasync as cs
from cudasync.experiments.experiment import Experiment

if TYPE_CHECKING:
    import numpy as np

    Matrix = np.ndarray[Any, Any]


def prepare(size: int) -> tuple[cs.Array, cs.Array]:
    rng = cs.random.Generator(seed=1)
    x = rng.normal(0, size**-0.5, (size, size), device=0)
    y = rng.normal(0, size**-0.5, (size, size), device=1)
    return x, y


def ten_products(x: cs.Array) -> list[cs.Array]:
    return [x @ x for _ in range(10)]


def one_after_the_other(x: cs.Array, y: cs.Array) -> list[cs.Array]:
    on_the_first = ten_products(x)
    cs.waitall()
    on_the_second = ten_products(y)
    return on_the_first + on_the_second


def together(x: cs.Array, y: cs.Array) -> list[cs.Array]:
    on_the_first = ten_products(x)
    on_the_second = ten_products(y)
    return on_the_first + on_the_second


def in_numpy(x: Matrix, y: Matrix) -> list[Matrix]:
    return [x @ x] * 10 + [y @ y] * 10


EXPERIMENT = Experiment(
    name="two-gpus",
    title="ten matrix products on each of two GPUs",
    expectation="together they take as long as the slower GPU alone",
    clock="device",
    devices=2,
    size=256,
    prepare=prepare,
    parts={"GPU 0": lambda x, y: ten_products(x), "GPU 1": lambda x, y: ten_products(y)},
    ways={"one after the other": one_after_the_other, "together": together},
    expected_ms=lambda ms: max(ms["GPU 0"], ms["GPU 1"]),
    reference=in_numpy,
)
