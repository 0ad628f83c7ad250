"""Floor 4, the standard's namespace: inspection."""

from __future__ import annotations

from typing import Any

from cudasync.array.dtypes import supported as dtypes
from cudasync.array.host.memory import CPU
from cudasync.driver import Device, device_count
from cudasync.xp.parameter_checks import place

_GROUPS = {
    "bool": (dtypes.BOOL,),
    "signed integer": dtypes.ALL[1:5],
    "unsigned integer": dtypes.ALL[5:9],
    "integral": dtypes.ALL[1:9],
    "real floating": dtypes.ALL[10:],
    "complex floating": (),
    "numeric": (*dtypes.ALL[1:9], *dtypes.ALL[10:]),
}


class Info:
    """The result of `__array_namespace_info__`: the capabilities of this namespace."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing, shapes that depend on data, the largest number of dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The current device."""
        found: Device = place(None)
        return found

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of results without a dtype; there is no complex one."""
        return {
            "real floating": dtypes.DEFAULT_FLOAT,
            "integral": dtypes.DEFAULT_INT,
            "indexing": dtypes.DEFAULT_INT,
        }

    def devices(self) -> list[Any]:
        """All devices."""
        return [*(Device(ordinal) for ordinal in range(device_count())), CPU]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The standard's dtypes by name, those of `kind` (a word of `isdtype`, or several)."""
        kinds = ("bool", "numeric") if kind is None else kind
        words = kinds if isinstance(kinds, tuple) else (kinds,)
        for word in words:
            if word not in _GROUPS:
                raise ValueError(f"no kind of dtype is called {word!r}: one of {list(_GROUPS)}")
        return {each.name: each for word in words for each in _GROUPS[word]}


def __array_namespace_info__() -> Info:
    """The capabilities of this namespace; `devices()` and `dtypes()` are methods of the result."""
    return Info()
