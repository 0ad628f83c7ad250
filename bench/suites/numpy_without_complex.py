"""NumPy as it would look without complex dtypes: the peer of cudasync.xp in the standard's suite.

Both get the same tests: those of complex numbers are left out for both.
"""

from __future__ import annotations

from typing import Any

import numpy

_LEFT_OUT = {"complex64", "complex128", "fft", "linalg"}
__array_api_version__ = "2024.12"
__version__ = numpy.__version__


def __getattr__(name: str) -> Any:
    if name in _LEFT_OUT or name.startswith("__"):
        raise AttributeError(name)
    return getattr(numpy, name)


def __dir__() -> list[str]:
    return [name for name in dir(numpy) if name not in _LEFT_OUT]


class _Info:
    """NumPy's `__array_namespace_info__`, without the dtypes that are left out."""

    def __init__(self) -> None:
        self._info = numpy.__array_namespace_info__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._info, name)

    def dtypes(self, **options: Any) -> dict[str, Any]:
        return _real(self._info.dtypes(**options))

    def default_dtypes(self, **options: Any) -> dict[str, Any]:
        return _real(self._info.default_dtypes(**options))


def __array_namespace_info__() -> _Info:
    return _Info()


def _real(dtypes: dict[str, Any]) -> dict[str, Any]:
    return {name: dtype for name, dtype in dtypes.items() if not name.startswith("complex")}
