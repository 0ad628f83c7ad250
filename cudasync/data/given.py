"""Floor 4. What verbs are given, looked at before anything runs: the error has the user's line."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., Any]")


def number(value: Any, word: str, least: int) -> int:
    """`value` as an integer. TypeError for what is none, ValueError below `least`."""
    try:
        found = operator.index(value)
    except TypeError:
        found = None
    if found is None or isinstance(value, bool):
        raise TypeError(f"{word} is a whole number, not {value!r}")
    if found < least:
        raise ValueError(f"{word} is {found}: at least {least}")
    return found


def function(value: Function, verb: str) -> Function:
    """`value`, which is called with an item. TypeError for what is no function."""
    if not callable(value):
        raise TypeError(f"{verb} takes a function of an item, not {value!r}")
    return value
