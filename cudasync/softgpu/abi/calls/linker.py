"""Cellar. The driver's linker: PTX goes in, PTX comes out.

The output is called a cubin, as the driver's is. Here the machine code of the device is PTX.
Clients load it, keep it in files, or link it again.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cudasync import late
from cudasync.errors import PtxError
from cudasync.softgpu.abi.marshalling.jit_options import JitOptions
from cudasync.softgpu.abi.marshalling.pointers import get_text, need, offer_u64, put_u64
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.handles import Handles, new_handle
from cudasync.softgpu.core.driver_types.result_codes import (
    FILE_NOT_FOUND,
    INVALID_PTX,
    INVALID_VALUE,
    NO_BINARY_FOR_GPU,
    UNKNOWN,
    DriverFailure,
)
from cudasync.softgpu.core.modules.module_images import kind_of

if TYPE_CHECKING:
    from cudasync.softgpu.core import linking
    from cudasync.softgpu.core.linking import device_runtime
    from cudasync.softgpu.core.machine import Machine
else:
    # Few programs link.
    linking = late.Module("cudasync.softgpu.core.linking")
    device_runtime = late.Module("cudasync.softgpu.core.linking.device_runtime")

# CUjitInputType.
_CUBIN, _PTX, _LIBRARY, _KINDS = 0, 1, 4, 6
_ARCHIVE: Final = b"!<arch>\n"


class Link:
    """A link in progress: the PTX added so far, and the buffer of the result."""

    def __init__(self, log: JitOptions) -> None:
        self.log = log
        self.texts: list[tuple[str, bytes]] = []
        self.has_runtime = False
        self.result: ctypes.Array[ctypes.c_char] | None = None

    def add(self, kind: int, data: bytes, name: str) -> None:
        """Add an input; DriverFailure if it is not PTX."""
        if not 0 <= kind <= _KINDS:
            raise DriverFailure(INVALID_VALUE, f"unknown kind {kind} of input")
        if kind == _LIBRARY and data.startswith(_ARCHIVE) and device_runtime.LIBRARY_MARK in data:
            self.has_runtime = True
            return
        if kind != _PTX and b".version" not in data[:4096]:
            what = kind_of(data) or "no PTX"
            raise DriverFailure(
                NO_BINARY_FOR_GPU, f"{name} is {what}; the software GPU links PTX only"
            )
        self.texts.append((name, data.rstrip(b"\0")))

    def complete(self) -> bytes:
        """The linked PTX; DriverFailure with the log's text if the link fails."""
        if not self.texts:
            raise DriverFailure(INVALID_VALUE, "nothing was added to the link")
        try:
            return linking.link(self.texts, runtime=self.has_runtime)
        except linking.LinkError as problem:
            raise DriverFailure(UNKNOWN, str(problem)) from problem
        except PtxError as problem:
            where = f"{problem.file}, line {problem.line}; error   "
            raise DriverFailure(INVALID_PTX, f"ptxas {where}: {problem.message}") from problem


_links: Handles[Link] = Handles("link")


@export("cuLinkCreate")
def cu_link_create(machine: Machine, count: int, options: int, values: int, handle: int) -> None:
    need(handle)
    machine.context()
    created = new_handle()
    log = JitOptions(count, options, values)
    with log:
        _links.add(created, Link(log))
    put_u64(handle, created)


@export("cuLinkAddData")
def cu_link_add_data(
    _machine: Machine,
    handle: int,
    kind: int,
    data: int,
    size: int,
    name: int,
    _count: int,
    _options: int,
    _values: int,
) -> None:
    found = _links.get(handle)
    need(data, size)
    with found.log:
        title = get_text(name) if name else "<unnamed>"
        found.add(kind, ctypes.string_at(data, size), title)


@export("cuLinkAddFile")
def cu_link_add_file(
    _machine: Machine, handle: int, kind: int, path: int, _count: int, _options: int, _values: int
) -> None:
    found = _links.get(handle)
    name = get_text(path)
    try:
        data = Path(name).read_bytes()
    except OSError as problem:
        raise DriverFailure(FILE_NOT_FOUND, str(problem)) from None
    with found.log:
        found.add(kind, data, name)


@export("cuLinkComplete")
def cu_link_complete(_machine: Machine, handle: int, image: int, size: int) -> None:
    found = _links.get(handle)
    need(image)
    with found.log:
        found.result = ctypes.create_string_buffer(found.complete())
    put_u64(image, ctypes.addressof(found.result))
    offer_u64(size, len(found.result))


@export("cuLinkDestroy")
def cu_link_destroy(_machine: Machine, handle: int) -> None:
    _links.remove(handle)
