"""Floor 4. Checks on the arguments of verbs before anything runs: errors have the user's line."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., Any]")


def number(value: Any, word: str, least: int) -> int:
    """`value` as an integer. TypeError for anything else, ValueError below `least`."""
    try:
        found = operator.index(value)
    except TypeError:
        found = None
    if found is None or isinstance(value, bool):
        raise TypeError(f"{word} must be an integer, not {value!r}")
    if found < least:
        raise ValueError(f"{word} is {found}: at least {least}")
    return found


def function(value: Function, verb: str) -> Function:
    """`value`, which takes an item. TypeError if it is not callable."""
    if not callable(value):
        raise TypeError(f"{verb} takes a function of one item, not {value!r}")
    return value
