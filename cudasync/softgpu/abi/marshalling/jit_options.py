"""Cellar. The JIT options of a load: the buffers for the compiler's log.

Other options tune code generation for a GPU and have no meaning here.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import need
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure

if TYPE_CHECKING:
    from types import TracebackType

# CUjit_option.
_INFO_BUFFER, _INFO_SIZE, _ERROR_BUFFER, _ERROR_SIZE = 3, 4, 5, 6
_LOGS: Final = ((_INFO_BUFFER, _INFO_SIZE), (_ERROR_BUFFER, _ERROR_SIZE))


class JitOptions:
    """A context manager that writes a compilation failure to the error log."""

    def __init__(self, count: int, options: int, values: int) -> None:
        self._values = values
        self._places: dict[int, int] = {}
        if count and options and values:
            need(options, 4 * count)
            need(values, 8 * count)
            numbers = (ctypes.c_int * count).from_address(options)
            self._places = {number: index for index, number in enumerate(numbers)}

    def __enter__(self) -> None:
        for buffer, size in _LOGS:
            self._write(buffer, size, "")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(problem, DriverFailure) and problem.detail:
            self._write(_ERROR_BUFFER, _ERROR_SIZE, problem.detail)

    def _write(self, buffer_option: int, size_option: int, text: str) -> None:
        """Fill a log buffer, and write the used length to its size, as the driver does."""
        if buffer_option not in self._places or size_option not in self._places:
            return
        buffer = self._value(buffer_option).value
        size = self._value(size_option)
        capacity = size.value & 0xFFFFFFFF
        if not buffer or not capacity:
            return
        if text:
            data = text.encode()[: capacity - 1] + b"\0"
            need(buffer, len(data))
            ctypes.memmove(buffer, data, len(data))
            size.value = len(data)
        else:
            need(buffer, 1)
            ctypes.memset(buffer, 0, 1)

    def _value(self, option: int) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(self._values + 8 * self._places[option])
