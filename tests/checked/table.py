"""The programs of this folder, and their building blocks.

A program is a function without arguments that creates what it needs and frees it again. `@wrong`
says which check finds the error. `@right` says why the program is right although it is close to an
error. Each program runs under all checks; `TABLE.md` is written from these declarations.
"""

from __future__ import annotations

import ctypes
import functools
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cuda.bindings import driver
from helpers.driver.call_results import ok

import cudasync as cs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
TABLE = HERE / "TABLE.md"
WORD, FLAG = ctypes.c_uint64, ctypes.c_int
# The argument types of each kernel of kernels.cu.
ARGUMENTS = {
    "fill": (WORD, FLAG, FLAG),
    "twice": (WORD, WORD, FLAG),
    "sum": (WORD, WORD, FLAG),
    "fill_to_and_with": (WORD, FLAG),
    "before": (WORD, WORD, FLAG),
    "by_name": (WORD, FLAG),
    "of_their_own": (WORD, FLAG),
    "values_of": (WORD, WORD, FLAG),
    "bytes_of": (WORD, WORD, FLAG),
    "write_and_read": (WORD, WORD, FLAG),
    "shared_in_part": (WORD, FLAG, FLAG),
    "dynamic_in_part": (WORD, FLAG, FLAG),
    "local_in_part": (WORD, FLAG, FLAG),
    "barrier_of_some": (WORD, FLAG),
    "two_barriers": (WORD, FLAG),
    "handed_over": (WORD,),
    "handed_over_to_more": (WORD,),
    "warp_barrier": (WORD, FLAG, FLAG),
    "neighbour": (WORD, FLAG, FLAG),
    "votes": (WORD, FLAG, FLAG),
    "half_votes": (WORD, FLAG),
    "sides_meet": (WORD,),
    "sides_miss": (WORD,),
    "warp_before_block": (WORD, FLAG),
    "masks_of_sides": (WORD, FLAG, FLAG),
    "sum_of_warps": (WORD, WORD),
    "sum_of_half": (WORD, WORD, FLAG),
    "sum_by_functions": (WORD, WORD, FLAG),
    "votes_in_rounds": (WORD, FLAG),
    "barrier_behind_return": (WORD, FLAG),
    "barrier_around_work": (WORD, FLAG),
    "barriers_in_rounds": (WORD, FLAG),
    "barriers_of_lanes": (WORD, FLAG),
    "counted_by_sides": (WORD,),
    "arrivals": (WORD, FLAG),
    "raised_flag": (WORD, FLAG),
    "spins": (WORD, FLAG),
    "grid_of": (WORD, FLAG),
}


@dataclass(frozen=True)
class Program:
    """One program. `kind` is the check that finds its error, or "" for a right program."""

    run: Callable[[], object]
    kind: str
    what: str

    @property
    def file(self) -> str:
        """The name of its file without the suffix."""
        return Path(self.run.__code__.co_filename).stem

    @property
    def name(self) -> str:
        return f"{self.file}.{self.run.__name__}"

    @property
    def is_of_a_keeper(self) -> bool:
        """True if its library keeps modules and streams for good, which would count as leaks."""
        return self.file == "with_numba"


PROGRAMS: list[Program] = []


def wrong(kind: str, what: str) -> Callable:
    """Declare a wrong program: the check of this kind finds the error, and no check finds anything
    else."""

    def enter(run: Callable[[], object]) -> Callable[[], object]:
        PROGRAMS.append(Program(run, kind, what))
        return run

    return enter


def right(what: str) -> Callable:
    """Declare a right program: no check finds anything, although it is close to an error."""
    return wrong("", what)


def as_table(programs: list[Program]) -> list[str]:
    """A readable line for each program."""
    return [f"| `{p.name}` | {p.kind or 'nothing'} | {p.what} |" for p in programs]


@functools.cache
def module() -> cs.Module:
    """The kernels, which are loaded before a check begins."""
    cs.Device(0).use()
    return cs.Module.from_cuda(
        (HERE / "kernels.cu").read_text(), options=("-lineinfo",), name="kernels.cu"
    )


@functools.cache
def kernel(name: str) -> object:
    return module().kernel(name).function


def call(name: str, *arguments: int, on: object = 0, grid: int = 1, block: int = 32, room: int = 0):
    """The arguments of cuLaunchKernel for a kernel. The program itself makes the call."""
    shape = (grid, 1, 1, block, 1, 1)
    return kernel(name), *shape, room, on, (arguments, ARGUMENTS[name]), 0


# Objects that a program uses until it ends.


@contextmanager
def streams(count: int = 2, flags: int = 1) -> Iterator[list]:
    made = [ok(driver.cuStreamCreate(flags)) for _ in range(count)]
    yield made
    for each in made:
        ok(driver.cuStreamDestroy(each))


@contextmanager
def events(count: int = 1) -> Iterator[list]:
    made = [ok(driver.cuEventCreate(2)) for _ in range(count)]
    yield made
    for each in made:
        ok(driver.cuEventDestroy(each))


@contextmanager
def memory(*sizes: int, value: int | None = 0) -> Iterator[list[int]]:
    """Device memory filled with this byte value; None leaves it unwritten."""
    made = [int(ok(driver.cuMemAlloc(size))) for size in sizes]
    if value is not None:
        for address, size in zip(made, sizes, strict=True):
            ok(driver.cuMemsetD8(address, value, size))
        ok(driver.cuCtxSynchronize())
    yield made
    for address in made:
        ok(driver.cuMemFree(address))


@contextmanager
def pinned(*sizes: int) -> Iterator[list[int]]:
    made = [int(ok(driver.cuMemHostAlloc(size, 0))) for size in sizes]
    for address, size in zip(made, sizes, strict=True):
        ctypes.memset(address, 0, size)
    yield made
    for address in made:
        ok(driver.cuMemFreeHost(address))
