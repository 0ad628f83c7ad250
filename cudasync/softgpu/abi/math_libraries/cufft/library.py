"""Cellar, abi. The functions of cuFFT that are implemented, and those that are refused."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.marshalling.pointers import need, put_i32, put_u64
from cudasync.softgpu.abi.math_libraries.cufft.plans import (
    C2C,
    C2R,
    CODES,
    D2Z,
    FORWARD,
    INVALID_PLAN,
    INVALID_TYPE,
    INVALID_VALUE,
    INVERSE,
    R2C,
    Z2D,
    Z2Z,
    Transform,
)
from cudasync.softgpu.abi.math_libraries.stand_in import LibraryFailure, StandIn
from cudasync.softgpu.core.graphs.library_calls import enqueue_routine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

# The SONAME's number and CUFFT_VERSION, by the CUDA version that a client was built for.
_NUMBERS: Final = {12: 11, 13: 12}
_VERSIONS: Final = {12: 11400, 13: 12000}
REFUSED: Final = (
    "cufftXtSetGPUs",
    "cufftXtSetWorkArea",
    "cufftXtMemcpy",
    "cufftXtExec",
    "cufftXtExecDescriptorC2C",
    "cufftXtExecDescriptorZ2Z",
    "cufftXtMakePlanMany",
    "cufftXtSetCallback",
    "cufftXtSetJITCallback",
    "__cufftXtSetJITCallback_12_7",
)


@dataclass(slots=True)
class Plan:
    """A plan: without a transform until it is made."""

    transform: Transform | None = None
    stream: int = 0


@dataclass(slots=True)
class Library:
    """The plans in existence."""

    table: FunctionTable
    major: int
    plans: dict[int, Plan] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def get(self, plan: int) -> Plan:
        """The plan with that number; CUFFT_INVALID_PLAN if it does not exist."""
        found = self.plans.get(plan)
        if found is None:
            raise LibraryFailure(INVALID_PLAN, f"there is no plan {plan}")
        return found

    def create(self, plan: int) -> None:
        need(plan, 4)
        number = next(self._numbers)
        self.plans[number] = Plan()
        put_i32(plan, number)

    def destroy(self, plan: int) -> None:
        self.get(plan)
        del self.plans[plan]

    def version(self, version: int) -> None:
        put_i32(version, _VERSIONS[self.major])

    def set_stream(self, plan: int, stream: int) -> None:
        self.get(plan).stream = stream

    def set_auto_allocation(self, plan: int, _is_automatic: int) -> None:
        self.get(plan)

    def set_work_area(self, plan: int, _area: int) -> None:
        # No work area is needed: `MakePlan` reports 0 bytes.
        self.get(plan)

    def make_1d(self, plan: int, length: int, kind: int, batch: int, size: int) -> None:
        self._make(plan, Transform(kind, (length,), batch), size)

    def make_many(
        self,
        plan: int,
        rank: int,
        lengths: int,
        embed_in: int,
        stride_in: int,
        distance_in: int,
        embed_out: int,
        stride_out: int,
        distance_out: int,
        kind: int,
        batch: int,
        size: int,
    ) -> None:
        if rank not in range(1, 4):
            raise LibraryFailure(INVALID_VALUE, f"a transform has 1 to 3 dimensions, not {rank}")
        # As documented: unless both embeddings are given, the layout is the basic one.
        of_input = of_output = None
        if embed_in and embed_out:
            of_input = (_ints(embed_in, rank), stride_in, distance_in)
            of_output = (_ints(embed_out, rank), stride_out, distance_out)
        transform = Transform(kind, _ints(lengths, rank), batch, of_input, of_output)
        self._make(plan, transform, size)

    def _make(self, plan: int, transform: Transform, size: int) -> None:
        transform.check()
        self.get(plan).transform = transform
        put_u64(size, 0)

    def execute(self, kind: int, plan: int, source: int, target: int, direction: int) -> None:
        found = self.get(plan)
        transform = found.transform
        if transform is None:
            raise LibraryFailure(
                INVALID_PLAN, f"plan {plan} has no transform: call a cufftMakePlan function first"
            )
        if transform.kind != kind:
            raise LibraryFailure(
                INVALID_TYPE, f"the plan is of type {transform.kind:#x}, not {kind:#x}"
            )
        if direction not in (FORWARD, INVERSE):
            raise LibraryFailure(INVALID_VALUE, f"there is no direction {direction}")
        of_input, of_output = transform.layouts(in_place=source == target)

        def run() -> None:
            answer = transform.compute(of_input.view(source), direction)
            of_output.view(target)[...] = answer

        machine = self.table.machine
        enqueue_routine(
            machine,
            machine.streams.get(found.stream),
            _EXECUTIONS[kind],
            run,
            reads=[(source, of_input.size_bytes)],
            writes=[(target, of_output.size_bytes)],
        )


_EXECUTIONS: Final = {
    C2C: "cufftExecC2C",
    R2C: "cufftExecR2C",
    C2R: "cufftExecC2R",
    Z2Z: "cufftExecZ2Z",
    D2Z: "cufftExecD2Z",
    Z2D: "cufftExecZ2D",
}


def calls(library: Library) -> dict[str, tuple[str, Callable[..., None]]]:
    """By name: the letters of the arguments and the function."""
    found: dict[str, tuple[str, Callable[..., None]]] = {
        "cufftCreate": ("p", library.create),
        "cufftDestroy": ("i", library.destroy),
        "cufftGetVersion": ("p", library.version),
        "cufftSetStream": ("ip", library.set_stream),
        "cufftSetAutoAllocation": ("ii", library.set_auto_allocation),
        "cufftSetWorkArea": ("ip", library.set_work_area),
        "cufftMakePlan1d": ("iiiip", library.make_1d),
        "cufftMakePlanMany": ("iippiipiiiip", library.make_many),
    }
    for kind, name in _EXECUTIONS.items():
        found[name] = _execution(library, kind)
    return found


def _execution(library: Library, kind: int) -> tuple[str, Callable[..., None]]:
    if kind in (C2C, Z2Z):
        return "ippi", partial(library.execute, kind)
    return "ipp", lambda plan, source, target: library.execute(kind, plan, source, target, FORWARD)


def _ints(address: int, count_: int) -> tuple[int, ...]:
    need(address, 4 * count_)
    return tuple((ctypes.c_int * count_).from_address(address))


def load(table: FunctionTable, major: int) -> list[StandIn]:
    """Load the library for clients of a major version of CUDA."""
    soname = f"libcufft.so.{_NUMBERS[major]}"
    return [StandIn(table, soname, calls(Library(table, major)), REFUSED, CODES)]
