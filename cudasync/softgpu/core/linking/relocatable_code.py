"""Cellar. Links the relocatable device code of a program, which `nvcc -rdc=true` embeds.

Each source file of such a program has a fat binary of its own, which may refer to functions and
variables of the others. NVIDIA's device runtime is one more of these fat binaries. It is machine
code, and `device_library` stands in for it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cudasync.errors import PtxError
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_IMAGE,
    INVALID_PTX,
    NO_BINARY_FOR_GPU,
    DriverFailure,
)
from cudasync.softgpu.core.fat_binaries.container import entries_of
from cudasync.softgpu.core.fat_binaries.decompression import payload_of
from cudasync.softgpu.core.fat_binaries.selection import select_ptx
from cudasync.softgpu.core.linking.device_library import called
from cudasync.softgpu.core.linking.device_runtime import LIBRARY_MARK
from cudasync.softgpu.core.linking.merge import LinkError, link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudasync.softgpu.core.driver_types.compute_capability import Capability

_UNDEFINED: Final = re.compile(r"Undefined reference to '(\w+)'")


def link_objects(containers: Sequence[bytes], capability: Capability) -> bytes:
    """The PTX for a device from the fat binaries of all source files, linked.

    NO_BINARY_FOR_GPU if a file has no PTX, or if device code calls what is missing here;
    INVALID_PTX if a name is not defined, or is defined twice.
    """
    texts = [
        (f"source file {number}", select_ptx(container, capability))
        for number, container in enumerate(containers, 1)
        if not _is_device_runtime(container)
    ]
    if not texts:
        raise DriverFailure(
            INVALID_IMAGE,
            "the program has relocatable device code, but no file of it was registered",
        )
    try:
        return link(texts, runtime=True)
    except LinkError as problem:
        raise _refusal(str(problem)) from problem
    except PtxError as problem:
        raise DriverFailure(INVALID_PTX, f"relocatable device code: {problem}") from problem


def _is_device_runtime(container: bytes) -> bool:
    """Whether a fat binary is that of libcudadevrt, which nvcc always links."""
    entries = entries_of(container)
    chosen = [entry for entry in entries if entry.is_ptx] or entries
    return any(LIBRARY_MARK in payload_of(entry) for entry in chosen[:1])


def _refusal(problem: str) -> DriverFailure:
    calls = sorted({name for each in _UNDEFINED.findall(problem) if (name := called(each))})
    if calls:
        return DriverFailure(
            NO_BINARY_FOR_GPU,
            f"the program's device code calls {', '.join(calls)}, which the software GPU does "
            "not have in device code: call it from the host",
        )
    return DriverFailure(INVALID_PTX, f"nvlink {problem}".replace("\n", "; "))
