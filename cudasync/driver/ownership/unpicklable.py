"""Floor 1. Objects that are valid in their own process only, and refuse pickle and copy.

By default Python pickles the slots of any object, including addresses and handles. The unpickled
object elsewhere, or the copy here, would look alive and be invalid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, SupportsIndex, TypeVar

from cudasync.driver.arguments.remedies import described

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def unpicklable(instead: str) -> Callable[[type[T]], type[T]]:
    """Decorate a class so that pickle and copy refuse its objects; `instead` names a remedy."""

    def refuse(self: object, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"{described(self)} is only valid in its own process, and cannot be pickled or "
            f"copied: {instead}"
        )

    def decorate(made: type[T]) -> type[T]:
        # pickle and copy both call it, whatever else the class defines.
        setattr(made, "__reduce_ex__", refuse)  # noqa: B010
        return made

    return decorate
