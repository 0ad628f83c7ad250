"""Floor 1. Objects that mean something in their own process only.

Left to itself Python pickles the slots of any object, addresses and handles among them, and what
comes out elsewhere, or as a copy here, looks alive and is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, SupportsIndex, TypeVar

from cudasync.driver.arguments.remedies import described

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def unpicklable(instead: str) -> Callable[[type[T]], type[T]]:
    """A class whose objects can neither be pickled nor copied; `instead` says what can be done."""

    def refuse(self: object, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"{described(self)} is of use in its own process only, and can not be pickled or "
            f"copied: {instead}"
        )

    def decorate(made: type[T]) -> type[T]:
        # pickle and copy both ask for it, whatever the class has.
        setattr(made, "__reduce_ex__", refuse)  # noqa: B010
        return made

    return decorate
