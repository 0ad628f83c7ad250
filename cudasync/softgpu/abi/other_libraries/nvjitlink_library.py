"""Cellar, abi. NVIDIA's own nvJitLink, which makes PTX of its compilers' intermediate code.

That needs no device. The library is loaded when a program first links intermediate code (LTO IR),
if it is installed: `pip install nvidia-nvjitlink`. Its functions are called through its own handle,
so the names that the stub exports stay the stand-in's.
"""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# nvJitLinkResult, nvJitLinkInputType.
SUCCESS: Final = 0
LTO_NOT_ENABLED: Final = 18
LTOIR: Final = 3

# Tried by the dynamic loader if there is no cuda.pathfinder to look into wheels.
_NAMES: Final = ("libnvJitLink.so.13", "libnvJitLink.so.12")


class NvJitLinkFailure(Exception):
    """A refusal of NVIDIA's nvJitLink: its result, and its log."""

    def __init__(self, result: int, log: bytes) -> None:
        self.result = result
        self.log = log
        super().__init__(f"nvJitLinkResult {result}: {log.decode(errors='replace')}")


class NvJitLink:
    """The library, opened."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def link(
        self, options: Sequence[str], inputs: Sequence[tuple[bytes, str]], wanted: str
    ) -> bytes:
        """Link inputs of intermediate code; `wanted` is "Ptx" or "LTOIR", with the options for it.

        NvJitLinkFailure with the library's own result and log if it refuses.
        """
        handle = ctypes.c_void_p()
        words = [option.encode() for option in options]
        made = self._library.nvJitLinkCreate(
            ctypes.byref(handle), len(words), (ctypes.c_char_p * len(words))(*words)
        )
        if made != SUCCESS:
            raise NvJitLinkFailure(made, b"")
        try:
            for data, name in inputs:
                self._call(
                    handle, "AddData", LTOIR, data, ctypes.c_size_t(len(data)), name.encode()
                )
            self._call(handle, "Complete")
            return self._text(handle, f"Linked{wanted}")
        finally:
            self._library.nvJitLinkDestroy(ctypes.byref(handle))

    def _call(self, handle: ctypes.c_void_p, name: str, *arguments: Any) -> None:
        result = getattr(self._library, f"nvJitLink{name}")(handle, *arguments)
        if result != SUCCESS:
            raise NvJitLinkFailure(result, self._text(handle, "ErrorLog").rstrip(b"\0"))

    def _text(self, handle: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(handle, f"Get{what}Size", ctypes.byref(size))
        text = ctypes.create_string_buffer(max(1, size.value))
        if size.value:
            self._call(handle, f"Get{what}", text)
        return text.raw[: size.value]


@cache
def found() -> NvJitLink | None:
    """NVIDIA's library, or None if it is not installed."""
    for path in _paths():
        try:
            return NvJitLink(path)
        except OSError:
            continue
    return None


def _paths() -> Sequence[str]:
    try:
        finder: Any = importlib.import_module("cuda.pathfinder")
        return [str(finder.load_nvidia_dynamic_lib("nvJitLink").abs_path)]
    # RuntimeError if there is none. Older bindings have no finder, or one that knows fewer names.
    except (ImportError, AttributeError, RuntimeError, ValueError):
        return _NAMES
