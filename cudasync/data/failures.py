"""Floor 4. Failures travel along the data: a failure is the last item that a cursor gives."""

from __future__ import annotations

from typing import Any

from cudasync.errors import CudasyncError


class DataError(CudasyncError):
    """A stage of an input pipeline failed; `__cause__` is the original exception.

    `stage` is the name of the stage. `index` is the position of the sample among those that the
    stage received in this epoch, from 0.
    """

    def __init__(self, stage: str, index: int, cause: BaseException) -> None:
        super().__init__(f"{stage}, sample {index}: {type(cause).__name__}: {cause}")
        self.stage = stage
        self.index = index
        self.__cause__ = cause

    def __reduce__(self) -> tuple[Any, ...]:
        return DataError, (self.stage, self.index, self.__cause__)


class Failed:
    """Follows the last good item; nothing comes after it."""

    __slots__ = ("error",)

    def __init__(self, error: DataError) -> None:
        self.error = error


def raise_unless_policy(on_error: str) -> None:
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', not {on_error!r}")


def is_failed(items: list[Any]) -> bool:
    """True if the items that a cursor gave end with a failure."""
    return bool(items) and items[-1].__class__ is Failed
