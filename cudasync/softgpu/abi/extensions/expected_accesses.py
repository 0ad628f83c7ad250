"""Cellar. Two functions that no driver has: they declare an op's accesses while its function runs.

    CUresult cudasyncBeginDeclared(const uint64_t *rows, unsigned int count, const char *op)
    CUresult cudasyncEndDeclared(void)

Commands that the calling thread enqueues between the two calls must only access memory that the
rows declare. Pairs may be nested; the innermost pair counts. A row is three words: start and end of
a range, and flags (1: may be read, 2: may be written). `op` is the op's name and place, for
reports. Without `op`, nothing is declared and nothing is checked. NOT_SUPPORTED if launches are not
recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import get_text, get_u64, need
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.launch.op_declarations import Declaration
from cudasync.softgpu.core.launch.undeclared_access import Declared

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_ROW_WORDS: Final = 3
_READS, _WRITES = 1, 2
_SIGNATURE: Final = "cuuint64_t const *, unsigned int, char const *"


@export("cudasyncBeginDeclared", signature=_SIGNATURE)
def cudasync_begin_declared(machine: Machine, rows: int, count: int, op: int) -> None:
    if not machine.record:
        raise DriverFailure(
            NOT_SUPPORTED, "launches are not recorded: set CUDASYNC_CHECK=1 before the start"
        )
    if count:
        need(rows)
    declared = []
    for index in range(count):
        place = rows + 8 * _ROW_WORDS * index
        start, end, flags = (get_u64(place + 8 * word) for word in range(_ROW_WORDS))
        if end < start:
            raise DriverFailure(INVALID_VALUE, f"row {index} ends before it starts")
        declared.append(Declared(start, end, bool(flags & _READS), bool(flags & _WRITES)))
    machine.expectations.begin(Declaration(declared, get_text(op)) if op else None)


@export("cudasyncEndDeclared", signature="void")
def cudasync_end_declared(machine: Machine) -> None:
    machine.expectations.end()
