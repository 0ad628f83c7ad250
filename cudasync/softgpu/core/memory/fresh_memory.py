"""Cellar. What fresh memory contains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.core.memory.allocation_table import MemoryKind
from cudasync.softgpu.interface.poison import poison, poison_fresh, zero_pages

if TYPE_CHECKING:
    from cudasync.softgpu.core.memory.allocation_table import Allocation

# Shared memory is poisoned up to this size, with zeros behind it, as for `cuMemCreate`.
_POISONED_BYTES: Final = 64 << 20


def fill(made: Allocation, *, poisons_managed: bool) -> None:
    """Fill fresh memory with poison; memory of `cuMemAllocManaged` with zeros, unless asked."""
    if made.shared is not None:
        # In place, because remapped pages would no longer be shared.
        poison(made.start, min(made.size_bytes, _POISONED_BYTES))
    elif made.kind is MemoryKind.MANAGED and not poisons_managed:
        zero_pages(made.start, made.size_bytes)
    else:
        poison_fresh(made.start, made.size_bytes)
