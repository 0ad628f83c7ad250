"""Floor 0. What each name means at the current place of the text.

A function's body is a scope. Each `{ }` inside opens another scope that sees everything around it.
The IR has no scopes: a name that is already taken gets a suffix `.2`, `.3`, ... which no name in a
text can have. So names are unique within a function and still readable.

Labels live apart from other names and may be used before they are defined. So the labels of a
scope are declared when the scope is entered.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Names(Generic[T]):
    """Names and their meanings, in nested scopes."""

    __slots__ = ("_declared", "meanings")

    # The meaning of every visible name: reading an operand looks into this dictionary only.
    meanings: dict[str, T]
    # For each open scope: the names declared in it, and the meaning that each hides (or None).
    _declared: list[dict[str, T | None]]

    def __init__(self, outer: dict[str, T] | None = None) -> None:
        self.meanings = dict(outer or {})
        self._declared = [{}]

    def enter(self) -> None:
        self._declared.append({})

    def leave(self) -> None:
        for name, hidden in self._declared.pop().items():
            if hidden is None:
                del self.meanings[name]
            else:
                self.meanings[name] = hidden

    @property
    def depth(self) -> int:
        """The number of open scopes."""
        return len(self._declared)

    def declare(self, name: str, meaning: T) -> bool:
        """Give `name` a meaning until this scope ends; False if the scope declares it already."""
        scope = self._declared[-1]
        if name in scope:
            return False
        scope[name] = self.meanings.get(name)
        self.meanings[name] = meaning
        return True


class Uniquifier:
    """Hands out names that are unique within the function."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def name(self, wanted: str) -> str:
        """`wanted` itself the first time, then `wanted.2`, `wanted.3` and so on."""
        count = self._taken.get(wanted, 0) + 1
        self._taken[wanted] = count
        return wanted if count == 1 else f"{wanted}.{count}"


def labels_by_brace(words: list[str]) -> dict[int, list[int]]:
    """For each `{`, by its index: the indices of the labels directly inside it."""
    labels: dict[int, list[int]] = {}
    stack: list[int] = [-1]
    for index, word in enumerate(words):
        if word == "{":
            stack.append(index)
        elif word == "}":
            if len(stack) > 1:
                stack.pop()
        elif word == ":" and index:
            labels.setdefault(stack[-1], []).append(index - 1)
    return labels
