"""Device memory without gaps: allocations may lie side by side, as a GPU's do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cudasync.softgpu.core.memory import arena
from cudasync.softgpu.core.memory.arena import Arena

# The blocks that were made without a gap, which is not to be freed with them.
_tight: set[tuple[Arena, int]] = set()
_release = Arena.release


@contextmanager
def memory_without_gaps() -> Iterator[None]:
    """The software GPU leaves no gap behind an allocation made inside. A GPU leaves none anyway."""
    reserve = Arena.reserve

    def reserve_tightly(self: Arena, size_bytes: int) -> int | None:
        with _gap(0):
            start = reserve(self, size_bytes)
        if start is not None:
            _tight.add((self, start))
        return start

    # Blocks that were made inside may be freed later.
    Arena.release = _released_as_made  # type: ignore[method-assign]
    Arena.reserve = reserve_tightly  # type: ignore[method-assign]
    try:
        yield
    finally:
        Arena.reserve = reserve  # type: ignore[method-assign]


def _released_as_made(self: Arena, start: int, size_bytes: int) -> None:
    if (self, start) not in _tight:
        _release(self, start, size_bytes)
        return
    _tight.remove((self, start))
    with _gap(0):
        _release(self, start, size_bytes)


@contextmanager
def _gap(size_bytes: int) -> Iterator[None]:
    usual, arena.GUARD_BYTES = arena.GUARD_BYTES, size_bytes  # type: ignore[misc]
    try:
        yield
    finally:
        arena.GUARD_BYTES = usual  # type: ignore[misc]
