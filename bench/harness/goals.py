"""The promises of a case: limits on one contender's time relative to another, in the same rounds.

A goal is judged by the median over rounds, like every number here. The report also has the spread,
so that a reader sees how near the limit is.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RATIO = "ratio"
MICROSECONDS = "us"


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit on the time of contender `of`.

    A "ratio" is the time of `of` over that of `over`. "us" is the difference of the two or, without
    `over`, the time itself. A "must" is a promise, a "goal" a wish. A missed goal is still met if
    `otherwise` is met: the limit that the machine allowed at that moment.
    """

    of: str
    over: str | None
    at_most: float
    unit: str = RATIO
    word: str = "must"
    otherwise: Goal | None = None

    def __post_init__(self) -> None:
        assert self.unit in (RATIO, MICROSECONDS)
        assert self.over is not None or self.unit == MICROSECONDS


def judged(goal: Goal, taken: Mapping[str, Mapping[int, float]]) -> dict[str, object]:
    """The goal and its outcome, as plain values; `taken` is nanoseconds by contender and round."""
    mine, its = taken[goal.of], taken.get(goal.over or "", {})
    if goal.over is None:
        values = [nanoseconds / 1000 for nanoseconds in mine.values()]
    elif goal.unit == RATIO:
        values = [mine[at] / its[at] for at in mine.keys() & its.keys()]
    else:
        values = [(mine[at] - its[at]) / 1000 for at in mine.keys() & its.keys()]
    value = spread(values)
    is_met = value["median"] <= goal.at_most
    found: dict[str, object] = {
        "of": goal.of,
        "over": goal.over,
        "word": goal.word,
        "unit": goal.unit,
        "at_most": goal.at_most,
        "value": value,
        "met": is_met,
    }
    if goal.otherwise is not None:
        other = judged(goal.otherwise, taken)
        found |= {"otherwise": other, "met": is_met or other["met"]}
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, the middle half, and the extremes, to four digits."""
    if len(values) > 1:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    else:
        low = high = values[0]
    named = {
        "median": statistics.median(values),
        "q1": low,
        "q3": high,
        "least": min(values),
        "most": max(values),
    }
    return {name: float(f"{value:.4g}") for name, value in named.items()}
