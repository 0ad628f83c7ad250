"""Cellar, abi. The versions of CUDA that fit: those with the structures of the runtime's table.

CUDA 13 changed arguments and structures of the runtime API under the same names. A program of
another version would be called wrongly, so it is refused before its first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cuda import bindings

from cudasync.errors import CudasyncError
from cudasync.softgpu.abi.marshalling.image_pointers import containers_at
from cudasync.softgpu.core.driver_types.result_codes import DriverFailure
from cudasync.softgpu.core.fat_binaries.container import entries_of

if TYPE_CHECKING:
    from collections.abc import Iterable

MAJOR: Final = 13
# CUDA 13.0 brought PTX ISA 9.0.
_LEAST_ISA: Final = 9


def check_bindings() -> None:
    """CudasyncError if cuda-bindings is for another version of CUDA."""
    major = bindings.__version__.partition(".")[0]
    if major != str(MAJOR):
        raise CudasyncError(
            f"native programs need cuda-bindings for CUDA {MAJOR}, not {bindings.__version__}: "
            f'pip install "cuda-python=={MAJOR}.*"'
        )


def check_programs(wrappers: Iterable[int]) -> None:
    """CudasyncError if a compiler before CUDA 13 made a fat binary of the program."""
    for wrapper in wrappers:
        try:
            entries = [entry for image in containers_at(wrapper) for entry in entries_of(image)]
        except DriverFailure:
            continue  # The load reports it, if the fat binary is ever loaded.
        for entry in entries:
            if entry.is_ptx and entry.isa_major < _LEAST_ISA:
                raise CudasyncError(
                    f"the program has PTX ISA {entry.isa_major} of a compiler before CUDA {MAJOR}: "
                    f"build it with the nvcc of CUDA {MAJOR}"
                )
