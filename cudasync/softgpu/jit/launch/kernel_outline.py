"""Cellar, jit. The properties of a kernel that loading and launching need, without instructions.

For modules that were compiled before, the outline is kept on disk with the texts. A later process
that loads such a module parses no PTX until it reports a fault or lowers a new variant.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cudasync.ptx import parse
from cudasync.softgpu.expansion import expand
from cudasync.softgpu.jit.kernel_abi.job_record import MOST_THREADS
from cudasync.softgpu.jit.transforms.program import prepare
from cudasync.softgpu.jit.transforms.slabs import Slab

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudasync.ptx import ir
    from cudasync.softgpu.jit.transforms.program import Program


@dataclass(frozen=True, slots=True)
class Outline:
    """Sizes in bytes, and counts of symbols, instructions and threads."""

    name: str
    line: int
    parameter_bytes: int
    parameter_offsets: tuple[int, ...]
    parameter_sizes: tuple[int, ...]
    static_shared_bytes: int
    reserved_shared_bytes: int
    # Local memory of each thread.
    slab_bytes: int
    # The alignment of slabs and of the shared window.
    alignment: int
    symbols: int
    instructions: int
    most_threads: int

    @property
    def slab(self) -> Slab:
        """The local memory of each thread."""
        return Slab(self.slab_bytes, self.alignment)


def outline_of(program: Program) -> Outline:
    """The outline of a kernel that is ready to be lowered."""
    kernel, places = program.kernel, program.kernel_storage
    return Outline(
        name=kernel.name,
        line=kernel.span.line,
        parameter_bytes=places.parameter_bytes,
        parameter_offsets=tuple(places.parameters.values()),
        parameter_sizes=tuple(parameter.size for parameter in kernel.parameters),
        static_shared_bytes=places.static_shared_bytes,
        reserved_shared_bytes=places.reserved_shared_bytes,
        slab_bytes=program.slab_bytes,
        alignment=program.alignment,
        symbols=len(places.symbols),
        instructions=len(program.instructions),
        most_threads=_most_threads(kernel),
    )


def record_of(module: ir.Module, outlines: Iterable[Outline]) -> bytes:
    """The disk record of a module: its target, its version and the outlines of its kernels."""
    kernels = [astuple(each) for each in outlines]
    return json.dumps([module.target, module.version, kernels]).encode()


def parts_of(record: bytes) -> tuple[str, tuple[int, int], list[Outline]]:
    """Target, version and outlines from a disk record."""
    target, (major, minor), kernels = json.loads(record)
    return target, (major, minor), [Outline(*map(_field, parts)) for parts in kernels]


def _field(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Source:
    """A module's PTX, parsed at the first request for a program."""

    def __init__(self, image: bytes) -> None:
        self._image = image

    @cached_property
    def _module(self) -> ir.Module:
        return expand(parse(self._image))

    def program(self, name: str) -> Program:
        """The kernel of this name, ready to be lowered."""
        module = self._module
        return prepare(module, module.function(name))


def _most_threads(kernel: ir.Function) -> int:
    for name in ("reqntid", "maxntid"):
        sizes = kernel.directives.get(name) or kernel.directives.get("." + name)
        if sizes:
            threads = 1
            for size in sizes:
                threads *= size
            return min(threads, MOST_THREADS)
    return MOST_THREADS
