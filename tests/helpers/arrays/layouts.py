"""Arrays of any layout, as Hypothesis strategies: views of a base, equal for NumPy and cudasync.

A layout is the wanted shape, a form of each axis in the base, and an order of the axes. An axis is
whole, has gaps, runs backwards, or has one element for all indices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

# For an axis of length n: the length of the base's axis, and the slice that takes n elements of it.
AXES = {
    "whole": lambda n: (n, slice(None)),
    "gaps": lambda n: (2 * n, slice(None, None, 2)),
    "backwards": lambda n: (n, slice(None, None, -1)),
    "inner": lambda n: (n + 2, slice(1, n + 1)),
    "back with gaps": lambda n: (3 * n, slice(None, None, -3)),
    "one": lambda n: (1, slice(None)),
}


@dataclass(frozen=True)
class Laid:
    """The layout of an operand of `shape`. With `one` among its axes it is broadcast to that
    shape."""

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    order: tuple[int, ...]
    missing: int

    def base(self, dtype: Any, seed: int) -> np.ndarray:
        """The base of the view."""
        lengths = [AXES[how](n)[0] for how, n in zip(self.axes, self.shape, strict=True)]
        rng = np.random.default_rng(seed)
        return rng.integers(0, 100, [lengths[axis] for axis in self.order]).astype(dtype)

    def of(self, base: Any) -> Any:
        """The view of a base, which is NumPy's or ours."""
        back = tuple(int(axis) for axis in np.argsort(self.order))
        turned = base.transpose(back) if isinstance(base, np.ndarray) else base._permuted(back)
        slices = [AXES[how](n)[1] for how, n in zip(self.axes, self.shape, strict=True)]
        view = turned[tuple(slices)] if slices else turned
        return view[(0,) * self.missing] if self.missing else view


_LENGTHS = st.sampled_from([1, 2, 3, 5, 33])
SHAPES = st.one_of(
    st.lists(_LENGTHS, max_size=3).map(tuple), st.sampled_from([(0,), (2, 0), (40, 2), (300,)])
)


def laid(shape: tuple[int, ...], *, broadcasts: bool = True) -> st.SearchStrategy[Laid]:
    """Layouts of an operand that has this shape, or broadcasts to it."""
    kinds = [each for each in AXES if broadcasts or each != "one"]
    axes = st.tuples(*(st.sampled_from(kinds) for _ in shape))
    order = st.permutations(range(len(shape))).map(tuple)
    if not broadcasts:
        return st.builds(Laid, st.just(shape), axes, order, st.just(0))

    def with_missing(how: tuple[str, ...]) -> st.SearchStrategy[Laid]:
        # Leading axes with one element for all indices may be left out.
        most = next((i for i, each in enumerate(how) if each != "one"), len(how))
        missing = st.integers(0, most)
        return st.builds(Laid, st.just(shape), st.just(how), order, missing)

    return axes.flatmap(with_missing)
