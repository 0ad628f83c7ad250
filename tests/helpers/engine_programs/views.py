"""Views for random programs, as Hypothesis strategies over tables that are made once."""

from __future__ import annotations

from functools import cache

from helpers.engine_programs.places import LENGTH, View
from hypothesis import strategies as st


class Table:
    """Views by number. A strategy over them is printed by this short name, not by its content."""

    def __init__(self, entries: list[View]) -> None:
        self.entries = entries

    def __call__(self, number: int) -> View:
        return self.entries[number]

    def __repr__(self) -> str:
        return f"one of {len(self.entries)} views"

    def strategy(self) -> st.SearchStrategy[View]:
        return st.integers(0, len(self.entries) - 1).map(self)


@cache
def contiguous(space: str, indices: tuple[int, ...]) -> st.SearchStrategy[View]:
    """Every view of these arrays without gaps, halves first."""
    half = LENGTH // 2
    slices = [(0, LENGTH), (0, half), (half, LENGTH)]
    slices += [(a, b) for a in range(LENGTH) for b in range(a + 1, LENGTH + 1)]
    return Table([View(space, i, a, b) for a, b in slices for i in indices]).strategy()


@cache
def views(space: str, indices: tuple[int, ...]) -> st.SearchStrategy[View]:
    """Views of these arrays, including views with gaps and backwards views."""
    steps = [(0, None, 2), (1, None, 2), (LENGTH - 1, None, -1), (4, 20, 3), (2, 11, 4)]
    steps += [(18, 5, -2), (9, None, -3), (11, LENGTH, 5)]
    strided = Table([View(space, i, *slice_) for slice_ in steps for i in indices]).strategy()
    plain = contiguous(space, indices)
    return st.one_of(plain, plain, strided)


def partner(target: View, wanted: View) -> View:
    """`wanted`, resized to `target`'s number of elements; either equal to `target` or disjoint."""
    count, step = len(target.elements), wanted.step
    if abs(step) * (count - 1) >= LENGTH:
        step = 1
    reach = step * (count - 1)
    start = min(max(wanted.start, -min(reach, 0)), LENGTH - 1 - max(reach, 0))
    stop = start + reach + (1 if step > 0 else -1)
    view = View(wanted.space, wanted.index, start, None if stop < 0 else stop, step)
    return target if view.overlaps(target) else view
