"""All-reduce on many ranks, message by message; what `scaling.py` asks for sizes and ranks.

A message leaves when its sender has what it sends, it takes latency and bytes over bandwidth, and
its receiver adds it up before it goes on. A rank sends and receives at once, on a line each. The
network between has no limit of its own, so nothing here is said of crowded switches.

`begins` has the moment at which each rank is ready, for ranks that are late.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Cost = Callable[[float], float]


@dataclass(frozen=True)
class Link:
    """Between any two ranks: seconds for an empty message, bytes a second, and how many bytes a
    second a rank adds up."""

    latency_s: float
    bandwidth: float
    summing: float

    def message(self, size: float) -> float:
        return self.latency_s + size / self.bandwidth


def ring(link: Link, ranks: int, size: float, begins: Sequence[float] | None = None) -> float:
    """The moment when all have the sum: each rank sends a part to its neighbour, `ranks - 1` times
    to add up, and as often to hand out."""
    part = size / ranks
    if begins is None:
        # All ranks do the same at the same moments: one stands for all.
        return (ranks - 1) * (2 * link.message(part) + part / link.summing)
    now = _moments(ranks, begins)
    for step in range(2 * (ranks - 1)):
        # Its own part of the step before has to be done, and its neighbour's be there.
        now = np.maximum(np.roll(now, 1), now) + link.message(part)
        if step < ranks - 1:
            now += part / link.summing
    return float(now.max())


def tree(link: Link, ranks: int, size: float, begins: Sequence[float] | None = None) -> float:
    """The same by pairs, pairs of pairs and so on, which add up all of it, and the way back."""
    now = _moments(ranks, begins)
    distance = 1
    while distance < ranks:
        low = np.arange(0, ranks - distance, 2 * distance)
        arrived = np.maximum(now[low], now[low + distance]) + link.message(size)
        now[low] = arrived + size / link.summing
        distance *= 2
    has = np.full(ranks, now[0])
    distance = 1
    while distance < ranks:
        senders = np.arange(min(distance, ranks - distance))
        has[senders + distance] = has[senders] + link.message(size)
        # A sender's line is its own again once the bytes are out.
        has[senders] += size / link.bandwidth
        distance *= 2
    return float(has.max())


def server(
    link: Link,
    ranks: int,
    size: float,
    servers: int = 1,
    begins: Sequence[float] | None = None,
) -> float:
    """The same by servers, processes of their own with the keys spread over them: they add up what
    all push as it comes, and then send it to all. Each rank begins with another server."""
    part = size / servers
    line = added = 0.0
    for begin in np.sort(_moments(ranks, begins)):
        line = max(line, begin) + part / link.bandwidth
        added = max(line + link.latency_s, added) + part / link.summing
    # A rank's line takes what all servers send to it; a server's, what it sends to all ranks.
    return float(added + max(ranks * part, size) / link.bandwidth + link.latency_s)


def crossover(first: Cost, second: Cost) -> float | None:
    """The bytes from which on the first is the quicker one; None where it never is below a TiB, 0
    where it is for any size."""
    low, high = 1.0, float(1 << 40)
    if first(low) <= second(low):
        return 0.0
    if first(high) > second(high):
        return None
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        if first(middle) <= second(middle):
            high = middle
        else:
            low = middle
    return high


def step(reduce: Cost, compute_s: float, size: float, buckets: int) -> float:
    """Seconds of a step of DataParallel: backward is two thirds of the compute, buckets become
    ready one after the other while it goes on, and are reduced in turn."""
    forward, done = compute_s / 3, 0.0
    for number in range(1, buckets + 1):
        ready = forward + (compute_s - forward) * number / buckets
        done = max(done, ready) + reduce(size / buckets)
    return done


def _moments(ranks: int, begins: Sequence[float] | None) -> np.ndarray:
    return np.zeros(ranks) if begins is None else np.array(begins, float)
