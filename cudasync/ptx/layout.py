"""Floor 0. Where each of several variables lies when they share one block of memory.

Parameters of a kernel and shared variables are laid out as the members of a C struct are, in
order, each at the next multiple of its alignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Variable


def layout(variables: Iterable[Variable]) -> tuple[dict[str, int], int]:
    """The byte offset of each variable by name, and the total size in bytes.

    The total is not rounded up to the strictest alignment: CUDA's parameter size is not either.
    """
    offsets: dict[str, int] = {}
    end = 0
    for variable in variables:
        start = -(-end // variable.align) * variable.align
        offsets[variable.name] = start
        end = start + variable.size
    return offsets, end
