"""Cellar. The one function that no driver has: what the next launch is expected to access.

    CUresult cudasyncExpectAccesses(
        CUfunction function, const uint64_t *rows, unsigned int count, const char *site)

It holds for the calling thread's next launch, if that is of `function`. A row is four words: the
index of a parameter, start and end of the memory it points to, and flags: 1 may be read, 2 may be
written, 4 declared by hand; `site` says where that was, for people. No rows take the expectation
back. NOT_SUPPORTED where launches are not recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.registry import export
from cudasync.softgpu.abi.values import get_text, get_u64, need
from cudasync.softgpu.core.expectations import Expected
from cudasync.softgpu.core.results import INVALID_VALUE, NOT_SUPPORTED, DriverFailure

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_ROW_WORDS: Final = 4
_READS, _WRITES, _BY_HAND = 1, 2, 4


_SIGNATURE: Final = "CUfunction, cuuint64_t const *, unsigned int, char const *"


@export("cudasyncExpectAccesses", signature=_SIGNATURE)
def cudasync_expect_accesses(
    machine: Machine, function: int, rows: int, count: int, site: int
) -> None:
    if not machine.record:
        raise DriverFailure(NOT_SUPPORTED, "launches are not recorded: CUDASYNC_CHECK is not 1")
    if count:
        need(rows)
        parameters = len(machine.modules.function(function).places)
    expected = []
    for index in range(count):
        place = rows + 8 * _ROW_WORDS * index
        parameter, start, end, flags = (get_u64(place + 8 * word) for word in range(_ROW_WORDS))
        if parameter >= parameters or end < start:
            raise DriverFailure(INVALID_VALUE, f"row {index} makes no sense")
        expected.append(
            Expected(
                parameter,
                start,
                end,
                bool(flags & _READS),
                bool(flags & _WRITES),
                bool(flags & _BY_HAND),
            )
        )
    machine.expectations.expect(function, expected, get_text(site) if site else "")
