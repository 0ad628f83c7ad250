"""The result of a way to train, compared with one device and with NumPy."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cudasync as cs
from cudasync.experiments.training.model import Settings, accuracy, in_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.experiments.training.digits import Data
    from cudasync.experiments.training.ways import Train

# The largest allowed difference of a loss; the first loss is about 2.4. Sums of float32 in another
# order change it by a few 1e-7 a step, and the differences accumulate.
TOLERANCE = 1e-5
# Other workers change the weights while a worker of servers computes, so its losses differ. The
# last losses must be at most this many times those of one device.
BOUND = 1.5
LAST = 4
# The largest allowed difference of float32 from NumPy's float64.
TOLERANCE_OF_NUMPY = 1e-4


@dataclass(frozen=True, slots=True)
class Trained:
    """The loss before each step of one way, the accuracy at the end, and the time of all steps."""

    name: str
    losses: list[float]
    accuracy: float
    seconds: float
    is_asynchronous: bool = False

    @property
    def last(self) -> float:
        """The mean of the last losses, each of which is from few rows."""
        return sum(self.losses[-LAST:]) / len(self.losses[-LAST:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All ways that ran, with one device as the first, and why other ways were left out."""

    settings: Settings
    ways: list[Trained]
    reference: list[float]
    left_out: dict[str, str]

    def difference(self, way: Trained) -> float:
        """The largest difference of a loss from that of one device."""
        return _difference(way.losses, self.ways[0].losses)

    @property
    def difference_of_numpy(self) -> float:
        return _difference(self.ways[0].losses, self.reference)

    def is_right(self, way: Trained) -> bool:
        """True if a way's losses equal those of one device, and the way learns.

        For an asynchronous way, True if the last losses are below a bound.
        """
        if way.is_asynchronous:
            return way.last <= BOUND * self.ways[0].last
        learns = way.losses[-1] < way.losses[0] or len(way.losses) == 1
        return learns and self.difference(way) <= TOLERANCE

    @property
    def holds(self) -> bool:
        """True if all ways are right, and one device agrees with NumPy."""
        is_close = self.difference_of_numpy <= TOLERANCE_OF_NUMPY
        return is_close and all(self.is_right(each) for each in self.ways)

    def as_json(self) -> dict[str, Any]:
        """A document of numbers, strings, lists and dicts."""
        return {
            "holds": self.holds,
            "tolerance": TOLERANCE,
            "tolerance_of_numpy": TOLERANCE_OF_NUMPY,
            "bound_of_asynchronous": BOUND,
            "difference_of_numpy": self.difference_of_numpy,
            "steps": self.settings.steps,
            "batch": self.settings.batch,
            "hidden": self.settings.hidden,
            "ways": [
                {
                    "name": each.name,
                    "losses": each.losses,
                    "accuracy": each.accuracy,
                    "ms_per_step": each.seconds * 1e3 / len(each.losses),
                    "is_asynchronous": each.is_asynchronous,
                    "difference": self.difference(each),
                    "is_right": self.is_right(each),
                }
                for each in self.ways
            ],
            "left_out": self.left_out,
        }


def run(
    name: str, train: Train, data: Data, settings: Settings, *, is_asynchronous: bool = False
) -> Trained:
    """Train in this process, first one step without timing, then all steps timed. Blocks."""
    train(data, Settings(hidden=settings.hidden, batch=settings.batch, steps=1))
    cs.waitall()
    begin = time.perf_counter()
    losses, weights = train(data, settings)
    cs.waitall()
    seconds = time.perf_counter() - begin
    return trained(name, losses, weights, data, seconds, is_asynchronous=is_asynchronous)


def trained(
    name: str,
    losses: cs.Array,
    weights: dict[str, cs.Array],
    data: Data,
    seconds: float,
    *,
    is_asynchronous: bool = False,
) -> Trained:
    """The result of a way, as values."""
    held = {key: each.numpy() for key, each in weights.items()}
    values = [float(each) for each in losses.numpy()]
    return Trained(name, values, accuracy(data, held), seconds, is_asynchronous)


def reference(data: Data, settings: Settings) -> list[float]:
    """The losses in NumPy."""
    return in_numpy(data, settings)[0]


def _difference(losses: Sequence[float], others: Sequence[float]) -> float:
    return max(abs(one - other) for one, other in zip(losses, others, strict=True))
