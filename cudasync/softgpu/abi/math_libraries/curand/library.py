"""Cellar, abi. The functions of cuRAND's host interface."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from itertools import count as numbers_from
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cudasync.softgpu.abi.marshalling.pointers import need, put_i32, put_u64
from cudasync.softgpu.abi.math_libraries.curand.generators import (
    LENGTH_NOT_MULTIPLE,
    OUT_OF_RANGE,
    TYPE_ERROR,
    Generator,
    check_kind,
    normal,
    poisson,
    uniform,
    words,
)
from cudasync.softgpu.abi.math_libraries.stand_in import Codes, LibraryFailure, StandIn
from cudasync.softgpu.core.driver_types.result_codes import (
    STREAM_CAPTURE_UNSUPPORTED,
    DriverFailure,
)
from cudasync.softgpu.core.graphs.library_calls import enqueue_routine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudasync.softgpu.abi.stub.dispatch_table import FunctionTable

    Numbers = np.ndarray[Any, Any]

# curandStatus.
_NOT_INITIALIZED, _LAUNCH_FAILURE, _INTERNAL_ERROR = 101, 201, 999
_CODES: Final = Codes(_NOT_INITIALIZED, OUT_OF_RANGE, _LAUNCH_FAILURE, _INTERNAL_ERROR)
_SONAME: Final = "libcurand.so.10"
_VERSION: Final = 10400
_ORDERINGS: Final = range(100, 107)
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


@dataclass(slots=True)
class Library:
    """The generators in existence."""

    table: FunctionTable
    generators: dict[int, Generator] = field(default_factory=dict)
    _handles: Iterator[int] = field(default_factory=lambda: numbers_from(0xC0DE_0000, 16))

    def get(self, generator: int) -> Generator:
        """The generator of that handle; CURAND_STATUS_NOT_INITIALIZED if it does not exist."""
        found = self.generators.get(generator)
        if found is None:
            raise LibraryFailure(_NOT_INITIALIZED, f"there is no generator {generator:#x}")
        return found

    def create(self, handle: int, kind: int) -> None:
        need(handle)
        check_kind(kind)
        number = next(self._handles)
        self.generators[number] = Generator(kind)
        put_u64(handle, number)

    def destroy(self, generator: int) -> None:
        self.get(generator)
        del self.generators[generator]

    def version(self, version: int) -> None:
        put_i32(version, _VERSION)

    def set_stream(self, generator: int, stream: int) -> None:
        self.get(generator).stream = stream

    def set_seed(self, generator: int, seed: int) -> None:
        found = self.get(generator)
        with found.lock:
            found.seed, found.position = seed, 0

    def set_offset(self, generator: int, offset: int) -> None:
        found = self.get(generator)
        with found.lock:
            found.position = offset

    def set_ordering(self, generator: int, ordering: int) -> None:
        self.get(generator)
        if ordering not in _ORDERINGS:
            raise LibraryFailure(
                OUT_OF_RANGE, f"a pseudo-random generator has no ordering {ordering}"
            )

    def fill(
        self,
        generator: int,
        name: str,
        target: int,
        count: int,
        dtype: np.dtype[Any],
        make: Callable[[int, int, int], Numbers],
    ) -> None:
        """Enqueue a command that writes `make(seed, place, count)` to memory."""
        found, machine = self.get(generator), self.table.machine
        stream = machine.streams.get(found.stream)
        if stream.capture is not None:
            # Each launch of the graph would give the same numbers.
            raise DriverFailure(STREAM_CAPTURE_UNSUPPORTED, f"{name} cannot be captured")
        machine.memory.place(target, count * dtype.itemsize)
        seed, place = found.take(count)

        def run() -> None:
            data = np.ascontiguousarray(make(seed, place, count), dtype)
            ctypes.memmove(target, data.ctypes.data, data.nbytes)

        writes = [(target, count * dtype.itemsize)]
        enqueue_routine(machine, stream, name, run, writes=writes)

    # The numbers of a generator

    def generate(self, generator: int, target: int, count: int) -> None:
        def make(seed: int, place: int, count: int) -> Numbers:
            return (words(seed, place, count) >> np.uint64(32)).astype(np.uint32)

        self.fill(generator, "curandGenerate", target, count, np.dtype(np.uint32), make)

    def generate_long_long(self, generator: int, _target: int, _count: int) -> None:
        self.get(generator)
        raise LibraryFailure(TYPE_ERROR, "only quasi-random generators give 64-bit integers")

    def uniform(
        self, name: str, dtype: np.dtype[Any], generator: int, target: int, count: int
    ) -> None:
        def make(seed: int, place: int, count: int) -> Numbers:
            return uniform(seed, place, count, dtype)

        self.fill(generator, name, target, count, dtype, make)

    def normal(
        self,
        name: str,
        dtype: np.dtype[Any],
        generator: int,
        target: int,
        count: int,
        mean: float,
        deviation: float,
    ) -> None:
        if count % 2:
            raise LibraryFailure(
                LENGTH_NOT_MULTIPLE, f"the count of normal numbers must be even, not {count}"
            )

        def make(seed: int, place: int, count: int) -> Numbers:
            found = normal(seed, place, count, mean, deviation)
            return np.exp(found) if "LogNormal" in name else found

        self.fill(generator, name, target, count, dtype, make)

    def poisson(self, generator: int, target: int, count: int, rate: float) -> None:
        if not rate > 0:
            raise LibraryFailure(
                OUT_OF_RANGE, f"the rate of a Poisson distribution must be above 0, not {rate}"
            )

        def make(seed: int, place: int, count: int) -> Numbers:
            return poisson(seed, place, count, rate)

        name = "curandGeneratePoisson"
        self.fill(generator, name, target, count, np.dtype(np.uint32), make)


def calls(library: Library) -> dict[str, tuple[str, Callable[..., None]]]:
    """By name: the letters of the arguments and the function."""
    found: dict[str, tuple[str, Callable[..., None]]] = {
        "curandCreateGenerator": ("pi", library.create),
        "curandDestroyGenerator": ("p", library.destroy),
        "curandGetVersion": ("p", library.version),
        "curandSetStream": ("pp", library.set_stream),
        "curandSetPseudoRandomGeneratorSeed": ("pz", library.set_seed),
        "curandSetGeneratorOffset": ("pz", library.set_offset),
        "curandSetGeneratorOrdering": ("pi", library.set_ordering),
        "curandGenerate": ("ppz", library.generate),
        "curandGenerateLongLong": ("ppz", library.generate_long_long),
        "curandGeneratePoisson": ("ppzd", library.poisson),
    }
    for suffix, dtype, letter in (("", _F32, "f"), ("Double", _F64, "d")):
        name = f"curandGenerateUniform{suffix}"
        found[name] = "ppz", _bound(library.uniform, name, dtype)
        for kind in ("Normal", "LogNormal"):
            name = f"curandGenerate{kind}{suffix}"
            found[name] = f"ppz{letter * 2}", _bound(library.normal, name, dtype)
    return found


def _bound(call: Callable[..., None], name: str, dtype: np.dtype[Any]) -> Callable[..., None]:
    return lambda *given: call(name, dtype, *given)


def load(table: FunctionTable, _major: int) -> list[StandIn]:
    """Load the library, which has one SONAME for all versions."""
    return [StandIn(table, _SONAME, calls(Library(table)), (), _CODES)]
