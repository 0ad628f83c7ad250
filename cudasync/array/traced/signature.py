"""Floor 4, traced functions. The signature of a call: the named facts on which a trace depends.

For an array these are shape, dtype, device, whether it may be written, and which earlier argument
is the same array; for other arguments the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudasync.array.array import Array
from cudasync.array.guards.facts import is_plain, kind_of_value
from cudasync.array.traced.trees import leaves, shape_of

if TYPE_CHECKING:
    from collections.abc import Mapping


class Signature:
    """The signature of one call: its `key`, and the distinct arrays among its arguments, and other
    objects, with their names."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.arrays: list[Array] = []
        self.objects: list[tuple[str, Any]] = []
        places: dict[int, tuple[int, str]] = {}
        parts: dict[str, Any] = {}
        for path, leaf in leaves(dict(given)):
            if not isinstance(leaf, Array):
                parts[path] = kind_of_value(leaf)
                if not is_plain(leaf):
                    self.objects.append((path, leaf))
                continue
            first = places.get(id(leaf))
            if first is not None:
                parts[path] = f"the same array as {first[1]}"
                continue
            places[id(leaf)] = len(self.arrays), path
            self.arrays.append(leaf)
            parts[path] = said_of(leaf)
        self.parts = parts
        self.key = shape_of(dict(given)), tuple(self.parts.items())

    @property
    def odd(self) -> str:
        """The reason why a graph cannot take these arrays, or ""."""
        for each in self.arrays:
            if not each.is_contiguous:
                return f"an array with strides {each.strides} cannot be an argument of a graph"
            if each.is_read_only:
                return "a read-only array cannot be an argument of a graph"
        return ""

    def against(self, other: Signature) -> list[str]:
        """The differences from `other`, in words."""
        found = [
            _changed(name, part, other.parts[name])
            if name in other.parts
            else f"{name} is new: {_shown(part)}"
            for name, part in self.parts.items()
            if name not in other.parts or other.parts[name] != part
        ]
        found += [f"{name} is gone" for name in other.parts if name not in self.parts]
        if not found and self.key != other.key:
            return ["its arguments are nested differently"]
        return found


def said_of(array: Array) -> str:
    """The facts about an array on which a trace depends."""
    sizes = ", ".join(map(str, array.shape))
    how = "" if array.is_contiguous else f" with strides {array.strides}"
    return f"{array.dtype}[{sizes}]{how} on {array.device}"


def _changed(name: str, part: Any, before: Any) -> str:
    return f"{name} is {_shown(part)}, and was {_shown(before)}"


def _shown(part: Any) -> str:
    return part if isinstance(part, str) else str(part[-1] if isinstance(part, tuple) else part)
