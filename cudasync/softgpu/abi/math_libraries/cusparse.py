"""Cellar, abi. A library with cuSPARSE's names, which refuses each call.

`cupyx.scipy.signal` and `cupyx.scipy.interpolate` import cuSPARSE's module, and most of their
functions never call the library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.math_libraries.stand_in import Codes, StandIn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

# cusparseStatus_t.
_NOT_INITIALIZED, _INVALID_VALUE, _EXECUTION_FAILED, _NOT_SUPPORTED = 1, 3, 6, 10
_CODES: Final = Codes(_NOT_INITIALIZED, _INVALID_VALUE, _EXECUTION_FAILED, _NOT_SUPPORTED)
_SONAME: Final = "libcusparse.so.12"


def load(table: FunctionTable, names: Iterable[str]) -> list[StandIn]:
    """Load the library, which has one SONAME for CUDA 12 and 13."""
    return [StandIn(table, _SONAME, {}, names, _CODES)]
