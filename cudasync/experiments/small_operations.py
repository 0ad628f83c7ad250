"""Four recurrent networks of ten steps each: one network after the other, and together.

A step is a matrix times a vector, which has too few threads to fill a GPU, and the next step needs
its result. Steps of other networks do not need it, so they can run beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import cudasync as cs
from cudasync import xp
from cudasync.experiments.experiment import Experiment

if TYPE_CHECKING:
    Vector = np.ndarray[Any, Any]


def prepare(size: int) -> tuple[cs.Array, ...]:
    rng = cs.random.Generator(seed=4)
    w = rng.normal(0, size**-0.5, (size, size), device=0)
    return w, *(rng.normal(0, 1, (size,), device=0) for _ in range(4))


def network(w: cs.Array, state: cs.Array) -> list[cs.Array]:
    states = []
    for _ in range(10):
        state = w @ state
        xp.tanh(state, out=state)
        states.append(state)
    return states


def one_after_the_other(w: cs.Array, *starts: cs.Array) -> list[cs.Array]:
    states = []
    for start in starts:
        cs.waitall()
        states += network(w, start)
    return states


def together(w: cs.Array, *starts: cs.Array) -> list[cs.Array]:
    states = []
    for start in starts:
        states += network(w, start)
    return states


def in_numpy(w: Vector, *starts: Vector) -> list[Vector]:
    states = []
    for state in starts:
        for _ in range(10):
            state = np.tanh(w @ state)
            states.append(state)
    return states


EXPERIMENT = Experiment(
    name="small-operations",
    title="four networks of small steps on one GPU",
    expectation="together they take as long as one of the four",
    clock="device",
    devices=1,
    size=512,
    prepare=prepare,
    parts={"one network": lambda w, start, *others: network(w, start)},
    ways={"one after the other": one_after_the_other, "together": together},
    expected_ms=lambda ms: ms["one network"],
    reference=in_numpy,
)
