"""Floor 4. The fingerprint of a pipeline: lines of text that are equal for equal pipelines.

Of a function it has the code, with constants, defaults and closures. Of lists and arrays it has the
length and some items, of files also size and date. It cannot see what a function reads elsewhere,
or what a dataset holds: the user must tell.
"""

from __future__ import annotations

import functools
import os
import types
import zlib
from typing import Any

import numpy as np

from cudasync.data.packing import packed

# This many items of a sequence are sampled, from the first to the last.
_LOOKS = 64
_PLAIN = (str, bytes, int, float, bool, complex, type(None))


def lines(made: tuple[Any, ...]) -> list[str]:
    """A line for each stage."""
    return [" ".join(map(_said, stage)) for stage in made]


def _said(value: Any) -> str:
    if isinstance(value, _PLAIN):
        return repr(value) if not isinstance(value, str) else value
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"({', '.join(map(_said, value))})"
    if isinstance(value, functools.partial):
        named = _said(tuple(value.keywords.items()))
        return f"partial {_said(value.func)} {_said(value.args)} {named}"
    if isinstance(value, types.MethodType):
        return f"{_said(value.__func__)} of {_said(value.__self__)}"
    if isinstance(value, types.FunctionType):
        return f"{value.__module__}.{value.__qualname__} #{_sum_of_function(value):08x}"
    if isinstance(value, types.BuiltinFunctionType | type):
        return f"{value.__module__}.{value.__qualname__}"
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    mark = getattr(value, "_fingerprint", None)
    if isinstance(mark, str):  # A Hugging Face dataset has this attribute.
        return f"{kind} {mark}"
    if isinstance(value, np.ndarray):
        return f"{kind} {value.dtype} {value.shape} #{_sum_of_items(value):08x}"
    if isinstance(value, list | range):
        return f"{kind} of {len(value)} #{_sum_of_items(value):08x}"
    call = vars(type(value)).get("__call__")
    if isinstance(call, types.FunctionType):
        inside = [(name, each) for name, each in vars(value).items() if isinstance(each, _PLAIN)]
        return f"{kind} {_said(call)} {_said(tuple(inside))}"
    return f"{kind} of {len(value)}" if hasattr(value, "__len__") else kind


def _sum_of_items(sequence: Any) -> int:
    """A checksum of some items, with date and size of items that are files."""
    count = len(sequence)
    step = max(1, count // _LOOKS)
    found = 0
    for at in sorted({*range(0, count, step), *range(max(0, count - 1), count)}):
        item = sequence[at]
        try:
            head, buffers = packed(item)
        except Exception:
            head, buffers = type(item).__qualname__.encode(), []
        if isinstance(item, str | os.PathLike) and os.path.isfile(item):
            state = os.stat(item)
            head += f"{state.st_size} {state.st_mtime_ns}".encode()
        found = zlib.crc32(head, found)
        for part in buffers:
            found = zlib.crc32(part, found)
    return found


def _sum_of_function(fn: types.FunctionType) -> int:
    cells = [each.cell_contents for each in fn.__closure__ or () if _is_full(each)]
    defaults = (fn.__defaults__, tuple((fn.__kwdefaults__ or {}).items()))
    told = [_told_of_code(fn.__code__), _said(defaults), *(_said(each) for each in cells)]
    return zlib.crc32("\n".join(told).encode("utf-8", "surrogateescape"))


def _is_full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asked for what it raises
    except ValueError:
        return False
    return True


def _told_of_code(code: types.CodeType) -> str:
    constants = [
        _told_of_code(each) if isinstance(each, types.CodeType) else repr(each)
        for each in code.co_consts
        if not isinstance(each, frozenset)
    ]
    return f"{code.co_code.hex()} {code.co_names} {constants}"
