"""Floor 0. What each name means at the place being read.

A function's body is a scope, and each `{ }` in it opens another that sees everything around
it. The IR has no scopes: a name that is taken already gets a suffix `.2`, `.3`, ... which no
name in a text can have, so that names are unique within a function and still readable.

Labels live apart from other names and may be used before they stand in the text, so the labels
of a scope are declared when it is entered.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Names(Generic[T]):
    """Names and what they mean, scope within scope."""

    __slots__ = ("_declared", "meanings")

    # What every visible name means: the one dictionary that reading an operand looks into.
    meanings: dict[str, T]
    # For each open scope the names declared in it, and what each hides (None: nothing).
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
        """How many scopes are open."""
        return len(self._declared)

    def declare(self, name: str, meaning: T) -> bool:
        """Make `name` mean `meaning` until this scope is left; False if it is declared here."""
        scope = self._declared[-1]
        if name in scope:
            return False
        scope[name] = self.meanings.get(name)
        self.meanings[name] = meaning
        return True


class Uniquifier:
    """Hands out names that nothing else in the function has."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def name(self, wanted: str) -> str:
        """`wanted` itself the first time, then `wanted.2`, `wanted.3` and so on."""
        count = self._taken.get(wanted, 0) + 1
        self._taken[wanted] = count
        return wanted if count == 1 else f"{wanted}.{count}"


def labels_by_brace(words: list[str]) -> dict[int, list[int]]:
    """For each `{`, by its index: the indices of the labels that stand directly inside it."""
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
