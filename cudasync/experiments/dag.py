"""A small computation on the CPU and two GPUs, where each place needs results of the others.

Its operations, as a graph:

    CPU    h ------------------> c = h @ h ----------> total
    GPU 0   \\-> a = (h @ v) @ v ----> p = a @ b ------/  /
    GPU 1    \\-> b = (h @ w) @ w --/-> q = b @ a -------/

Every arrow between two places is a `to_device`, which is an ordinary operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cudasync as cs
from cudasync.experiments.experiment import Experiment, serially

if TYPE_CHECKING:
    import numpy as np

    Matrix = np.ndarray[Any, Any]


def prepare(size: int) -> tuple[cs.Array, cs.Array, cs.Array]:
    rng = cs.random.Generator(seed=5)
    h = rng.normal(0, size**-0.5, (size, size), device="cpu")
    v = rng.normal(0, size**-0.5, (size, size), device=0)
    w = rng.normal(0, size**-0.5, (size, size), device=1)
    return h, v, w


def graph(h: cs.Array, v: cs.Array, w: cs.Array) -> list[cs.Array]:
    a = h.to_device(0) @ v @ v
    b = h.to_device(1) @ w @ w
    c = h @ h
    p = a @ b.to_device(0)
    q = b @ a.to_device(1)
    total = c + p.to_device("cpu") + q.to_device("cpu")
    return [a, b, c, p, q, total]


def in_numpy(h: Matrix, v: Matrix, w: Matrix) -> list[Matrix]:
    a, b, c = h @ v @ v, h @ w @ w, h @ h
    p, q = a @ b, b @ a
    return [a, b, c, p, q, c + p + q]


EXPERIMENT = Experiment(
    name="dag",
    title="a graph of operations across the CPU and two GPUs",
    expectation="independent operations run at the same time",
    clock="wall",
    devices=2,
    size=512,
    prepare=prepare,
    ways={"one after the other": serially(graph), "together": graph},
    reference=in_numpy,
)
