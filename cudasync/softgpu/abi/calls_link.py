"""Cellar. The driver's linker, as far as one piece of PTX needs it: what goes in comes out.

Clients that link before they load (numba-cuda does) hand the result to cuModuleLoadData, which
takes PTX as well as the machine code that a GPU's driver would have made.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

from cudasync.softgpu.abi.registry import export
from cudasync.softgpu.abi.values import get_text, need, offer_u64, put_u64
from cudasync.softgpu.core.handles import Handles, new_handle
from cudasync.softgpu.core.results import (
    FILE_NOT_FOUND,
    INVALID_VALUE,
    NO_BINARY_FOR_GPU,
    NOT_SUPPORTED,
    DriverFailure,
)

if TYPE_CHECKING:
    from cudasync.softgpu.core.machine import Machine

_PTX = 1


class Link:
    """A link under way: the PTX added so far, and the buffer of the result."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.result: ctypes.Array[ctypes.c_char] | None = None

    def add(self, kind: int, data: bytes) -> None:
        """One more input; DriverFailure for what is no PTX, or is more than one."""
        if kind != _PTX:
            raise DriverFailure(NO_BINARY_FOR_GPU, "only PTX can be linked")
        if self.texts:
            raise DriverFailure(NOT_SUPPORTED, "linking several PTX modules is not supported")
        self.texts.append(data.rstrip(b"\0"))


_links: Handles[Link] = Handles("link")


@export("cuLinkCreate")
def cu_link_create(machine: Machine, _count: int, _options: int, _values: int, link: int) -> None:
    need(link)
    machine.context()
    handle = new_handle()
    _links.add(handle, Link())
    put_u64(link, handle)


@export("cuLinkAddData")
def cu_link_add_data(
    _machine: Machine,
    link: int,
    kind: int,
    data: int,
    size: int,
    _name: int,
    _count: int,
    _options: int,
    _values: int,
) -> None:
    need(data)
    _links.get(link).add(kind, ctypes.string_at(data, size))


@export("cuLinkAddFile")
def cu_link_add_file(
    _machine: Machine, link: int, kind: int, path: int, _count: int, _options: int, _values: int
) -> None:
    try:
        data = Path(get_text(path)).read_bytes()
    except OSError as problem:
        raise DriverFailure(FILE_NOT_FOUND, str(problem)) from None
    _links.get(link).add(kind, data)


@export("cuLinkComplete")
def cu_link_complete(_machine: Machine, link: int, image: int, size: int) -> None:
    found = _links.get(link)
    need(image)
    if not found.texts:
        raise DriverFailure(INVALID_VALUE, "nothing was added to the link")
    found.result = ctypes.create_string_buffer(found.texts[0])
    put_u64(image, ctypes.addressof(found.result))
    offer_u64(size, len(found.result))


@export("cuLinkDestroy")
def cu_link_destroy(_machine: Machine, link: int) -> None:
    _links.remove(link)
