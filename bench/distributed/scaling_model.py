"""All-reduce on many ranks, simulated message by message, for `scaling.py`.

A message leaves when its sender has the data. It takes the latency, plus bytes over bandwidth. The
receiver adds the data before it goes on. A rank sends and receives at once, on a line for each. The
network has no limit of its own, so the model does not cover crowded switches.

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
    """A link between any two ranks: latency in seconds, bandwidth and summing in bytes a second."""

    latency_s: float
    bandwidth: float
    summing: float

    def message(self, size: float) -> float:
        return self.latency_s + size / self.bandwidth


def ring(link: Link, ranks: int, size: float, begins: Sequence[float] | None = None) -> float:
    """The moment when all ranks have the sum, by a ring.

    Each rank sends a part to its neighbour, `ranks - 1` times to add up, and as often to hand out.
    """
    part = size / ranks
    if begins is None:
        # All ranks do the same at the same moments, so one rank stands for all.
        return (ranks - 1) * (2 * link.message(part) + part / link.summing)
    now = _moments(ranks, begins)
    for step in range(2 * (ranks - 1)):
        # The rank must have finished its previous step, and its neighbour's part must have arrived.
        now = np.maximum(np.roll(now, 1), now) + link.message(part)
        if step < ranks - 1:
            now += part / link.summing
    return float(now.max())


def tree(link: Link, ranks: int, size: float, begins: Sequence[float] | None = None) -> float:
    """The same by a tree: pairs, pairs of pairs and so on add up everything, then send it back."""
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
        # A sender's line is free again once the bytes are out.
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
    """The same by servers in separate processes, with the keys spread over them.

    The servers add up the pushes of all ranks as they come, and then send the sum to all. Each rank
    begins with another server.
    """
    part = size / servers
    line = added = 0.0
    for begin in np.sort(_moments(ranks, begins)):
        line = max(line, begin) + part / link.bandwidth
        added = max(line + link.latency_s, added) + part / link.summing
    # A rank's line takes the messages of all servers. A server's line takes its messages to all
    # ranks.
    return float(added + max(ranks * part, size) / link.bandwidth + link.latency_s)


def crossover(first: Cost, second: Cost) -> float | None:
    """The bytes from which on the first algorithm is faster.

    None if it is never faster below a TiB; 0 if it is faster at any size.
    """
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
    """Seconds of a step of DataParallel.

    Backward is two thirds of the compute. Buckets become ready one after another while backward
    goes on, and are reduced in turn.
    """
    forward, done = compute_s / 3, 0.0
    for number in range(1, buckets + 1):
        ready = forward + (compute_s - forward) * number / buckets
        done = max(done, ready) + reduce(size / buckets)
    return done


def _moments(ranks: int, begins: Sequence[float] | None) -> np.ndarray:
    return np.zeros(ranks) if begins is None else np.array(begins, float)
