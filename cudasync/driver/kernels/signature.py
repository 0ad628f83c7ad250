"""Floor 1. A kernel's parameters and accesses, from the PTX or from the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuda.bindings import driver

from cudasync.driver.arguments.parameter import Parameter
from cudasync.driver.result import failure
from cudasync.ptx.access_analysis.accesses import analyse
from cudasync.ptx.types import Access, ScalarType

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from cudasync.ptx import ir

    # Parameters in order, the access to each module variable, and the reason why the kernel may
    # reach other memory, "" if it cannot.
    Signature: TypeAlias = tuple[tuple[Parameter, ...], Mapping[str, Access], str]

_BITS = {1: ScalarType.B8, 2: ScalarType.B16, 4: ScalarType.B32, 8: ScalarType.B64}
_NOT_READ = "cudasync cannot analyse such new PTX"


def signature_of(parsed: ir.Module | None, name: str, function: Any) -> Signature:
    """The signature of the kernel `name`, the driver's `function`; `parsed` is None for PTX that is
    newer than our parser."""
    if parsed is None:
        return _parameters_by_driver(function), {}, _NOT_READ
    declared = parsed.function(name)
    found = analyse(parsed, name)
    parameters = tuple(
        Parameter(
            variable.name,
            variable.type,
            variable.size,
            found.parameters[i],
            variable.is_array,
            element=found.elements[i],
            reason=found.reasons[i],
            fields=found.fields[i],
        )
        for i, variable in enumerate(declared.parameters)
    )
    return parameters, dict(found.symbols), found.beyond


def _parameters_by_driver(function: Any) -> tuple[Parameter, ...]:
    """The parameters with the sizes from cuFuncGetParamInfo."""
    parameters: list[Parameter] = []
    while True:
        code, _, size = driver.cuFuncGetParamInfo(function, len(parameters))
        if code:
            # Past the last parameter the driver answers CUDA_ERROR_INVALID_VALUE.
            if int(code) == 1:
                return tuple(parameters)
            raise failure(code, "cuFuncGetParamInfo")
        scalar = _BITS.get(size)
        name = f"parameter {len(parameters)}"
        parameters.append(
            Parameter(
                name,
                scalar or ScalarType.B8,
                size,
                Access.UNKNOWN,
                scalar is None,
                reason=_NOT_READ,
            )
        )
