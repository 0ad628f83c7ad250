"""The programs of bench_overlap: written serially, with independent parts.

A program takes its inputs and returns arrays. In `rounds` the loop may be a block of the graph.
The experiments after "Dive into Deep Learning" are those of `cudasync.experiments`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

import cudasync as cs
from cudasync import xp
from cudasync.experiments.catalogue import EXPERIMENTS

Inputs: TypeAlias = tuple[Any, ...]
Outputs: TypeAlias = list[Any]
# `loop(n)` gives contexts, one for each time that the program writes the body of the loop.
Loop: TypeAlias = "Callable[[int], Iterator[AbstractContextManager[Any]]]"

CHAINS, LAYERS, BATCHES, CHUNKS = 8, 4, 8, 6
STATES, ROUNDS = 4, 10


@dataclass(frozen=True)
class Program:
    """One program. `prepare()` makes its inputs; `run(*inputs)` may be called any number of times,
    and gives the same results each time if it `is_repeatable`."""

    name: str
    prepare: Callable[[], Inputs]
    run: Callable[..., Outputs]
    devices: int = 1
    # A function of the loop and the inputs; None for a program without a loop.
    looped: Callable[..., Outputs] | None = None


def random(*shape: int, seed: int = 1) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(seed).normal(0, shape[0] ** -0.5, shape)
    return values.astype(np.float32)


def weights_and_batches(side: int) -> Inputs:
    weights = [xp.asarray(random(side, side, seed=each)) for each in range(LAYERS)]
    return weights, [xp.asarray(random(side, side, seed=9 + each)) for each in range(CHAINS)]


def chains(weights: list[Any], batches: list[Any], *, keeps: bool) -> Outputs:
    """Independent chains of small layers. Temporaries are dropped, or kept until the end."""
    kept, out = [], []
    for x in batches:
        for w in weights:
            y = x @ w
            x = xp.tanh(y)
            if keeps:
                kept += [x, y]
        out.append(xp.mean(x, axis=1))
    return out


def layers_and_batches(side: int) -> Inputs:
    layers = [
        (xp.asarray(random(side, side, seed=each)), xp.asarray(random(side, seed=7 + each)))
        for each in range(3)
    ]
    return layers, [xp.asarray(random(side, side, seed=20 + each)) for each in range(BATCHES)]


def perceptron(layers: list[Any], x: Any) -> Any:
    """Three layers, and the shares of the classes."""
    for w, bias in layers[:-1]:
        x = xp.maximum(x @ w + bias, 0)
    w, bias = layers[-1]
    scores = xp.exp(x @ w + bias)
    return scores / xp.sum(scores, axis=1, keepdims=True)


def batches_through(layers: list[Any], batches: list[Any]) -> Outputs:
    return [perceptron(layers, x) for x in batches]


def two_models(side: int) -> Inputs:
    layers, (x, *_) = layers_and_batches(side)
    weights, _ = weights_and_batches(side)
    return layers, weights, x


def side_by_side(layers: list[Any], weights: list[Any], x: Any) -> Outputs:
    """A perceptron and a chain of products on the same batch, three times each."""
    out = []
    for _ in range(3):
        out.append(perceptron(layers, x))
        y = x
        for w in weights:
            y = xp.tanh(y @ w)
        out.append(y)
    return out


def chunks(side: int) -> Inputs:
    sources, targets, w = [], [], xp.asarray(random(side, side))
    for each in range(CHUNKS):
        source = cs.pinned_empty((side, side), np.float32)
        source[...] = random(side, side, seed=each)
        sources.append(source)
        targets.append(cs.pinned_empty((side, side), np.float32))
    places = [cs.zeros((side, side), np.float32) for _ in range(CHUNKS)]
    return sources, places, w, targets


def pipelines(sources: Any, places: Any, w: Any, targets: Any) -> Outputs:
    """Each chunk is uploaded, computed with and downloaded; no chunk needs another."""
    for source, x, target in zip(sources, places, targets, strict=True):
        cs.copy(x, source)
        cs.copy(target, xp.tanh(xp.tanh(x @ w) @ w))
    return list(targets)


def states(side: int) -> Inputs:
    w = xp.asarray(random(side, side))
    return w, *(xp.asarray(random(side, side, seed=3 + each)) for each in range(STATES))


def rounds(loop: Loop, w: Any, *starts: Any) -> Outputs:
    """Ten rounds of independent updates in place."""
    own = [xp.zeros_like(each) for each in starts]
    for each, start in zip(own, starts, strict=True):
        cs.copy(each, start)
    for body in loop(ROUNDS):
        with body:
            for each in own:
                xp.tanh(each @ w, out=each)
    return own


def all_programs(size_of: Callable[[str, int, int], int]) -> list[Program]:
    """The programs, with sizes from `size_of(name, small, large)`."""
    side = size_of("side", 16, 128)
    made = [
        Program("chains.dropped", partial(weights_and_batches, side), partial(chains, keeps=False)),
        Program("chains.kept", partial(weights_and_batches, side), partial(chains, keeps=True)),
        Program("batches", partial(layers_and_batches, side), batches_through),
        Program("models", partial(two_models, side), side_by_side),
        Program("pipelines", partial(chunks, side), pipelines),
        Program("rounds", partial(states, side), partial(rounds, written_out), looped=rounds),
    ]
    for name, each in EXPERIMENTS.items():
        size = size_of(name.replace("-", "_"), 16, min(each.size, 256))
        run = list(each.ways.values())[-1]
        made.append(Program(f"d2l.{name}", partial(each.prepare, size), run, each.devices))
    return made


def written_out(times: int) -> Iterator[AbstractContextManager[Any]]:
    """The loop as Python's."""
    from contextlib import nullcontext

    return (nullcontext() for _ in range(times))
