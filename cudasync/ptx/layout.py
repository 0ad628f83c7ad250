"""Floor 0. The offset of each of several variables that share one block of memory.

Parameters of a kernel and shared variables are laid out like the members of a C struct: in order,
each at the next multiple of its alignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx.ir import Variable


def layout(variables: Iterable[Variable]) -> tuple[dict[str, int], int]:
    """The byte offset of each variable by name, and the total size in bytes.

    The total is not rounded up to the strictest alignment, like CUDA's parameter size.
    """
    offsets: dict[str, int] = {}
    end = 0
    for variable in variables:
        start = -(-end // variable.align) * variable.align
        offsets[variable.name] = start
        end = start + variable.size
    return offsets, end
