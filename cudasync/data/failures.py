"""Floor 4. Failures travel along the data: a failure is the last item that a cursor gives."""

from __future__ import annotations

from typing import Any, NamedTuple

from cudasync.errors import CudasyncError


class Origin(NamedTuple):
    """The item of the source from which a sample comes: its index there, and a short text of it.

    Either is None where it is not known. Behind `zip` the index is a tuple of the indices in all
    sources; behind `concat` it is the number of the source, and the index there.
    """

    index: Any = None
    text: str | None = None


class DataError(CudasyncError):
    """A stage of an input pipeline failed; `__cause__` is the original exception.

    `stage` is the name of the stage. `index` is the position of the sample among those that the
    stage received in this epoch, from 0. `item_index` is the index of its item in the source, as
    before a shuffle: a tuple behind `zip` and `concat`, and None behind stages that change the
    number of items. `item` is the item in short, such as its path, or None.
    """

    def __init__(
        self, stage: str, index: int, cause: BaseException, origin: Origin | None = None
    ) -> None:
        self.stage = stage
        self.index = index
        self.item_index, self.item = origin or Origin()
        parts = [] if self.item is None else [self.item]
        if self.item_index is not None and (parts or self.item_index != index):
            parts.insert(0, f"item {self.item_index} of the source")
        where = f" ({', '.join(parts)})" if parts else ""
        super().__init__(f"{stage}, sample {index}{where}: {type(cause).__name__}: {cause}")
        self.__cause__ = cause

    def __reduce__(self) -> tuple[Any, ...]:
        origin = Origin(self.item_index, self.item)
        return DataError, (self.stage, self.index, self.__cause__, origin)


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
