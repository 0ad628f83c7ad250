"""A search that ends with the first random example that differs, as a planted bug has one soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st


class _Found(Exception):
    pass


# Some bugs show in one of some hundred programs.
MOST = 4000


def first_difference(
    differences: Callable[..., Sequence[Any]], *strategies: st.SearchStrategy[Any]
) -> list[Any]:
    """What `differences` gives for the first example that differs; nothing if `MOST` do not.

    Hypothesis draws constants from our code, so a change of any file changes its examples.
    """
    found: list[Any] = []

    @settings(
        max_examples=MOST, derandomize=True, database=None, deadline=None,
        phases=[Phase.generate], report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.tuples(*strategies))
    def search(example: tuple[Any, ...]) -> None:
        # Hypothesis runs the example that it has found once more.
        if not found:
            found.extend(differences(*example))
        if found:
            raise _Found

    with suppress(_Found):
        search()
    return found
