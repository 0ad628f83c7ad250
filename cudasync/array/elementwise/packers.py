"""Floor 4, elementwise. Generates functions that pack operands and return their regions.

Each combination of arrays and numbers has one, as in the driver layer's packing of kernel
arguments.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@cache
def packer(are_arrays: tuple[bool, ...], is_shifted: bool) -> Callable[..., Any]:
    """`pack(pack_into, buffer, operands, result, first)`; returns the regions of the arrays.

    `first` has offsets to add to the addresses, the result's last, if something `is_shifted`.
    """
    names = [f"a{i}" for i in range(len(are_arrays))]

    def address(name: str, position: int) -> str:
        return f"{name}.ptr + first[{position}]" if is_shifted else f"{name}.ptr"

    values = []
    arrays = [name for name, is_array in zip(names, are_arrays, strict=True) if is_array]
    for name in names:
        values.append(address(name, arrays.index(name)) if name in arrays else name)
    values.append(address("result", len(arrays)))
    source = (
        "def pack(pack_into, buffer, operands, result, first):\n"
        f"    [{', '.join(names)}] = operands\n"
        f"    pack_into(buffer, 0, {', '.join(values)})\n"
        f"    return ({''.join(f'{name}.region, ' for name in arrays)})\n"
    )
    namespace: dict[str, Any] = {}
    exec(compile(source, "<operands>", "exec"), namespace)
    made: Callable[..., Any] = namespace["pack"]
    return made
