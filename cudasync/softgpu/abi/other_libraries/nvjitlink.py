"""Cellar. A stand-in for nvJitLink, NVIDIA's other linker: it links PTX instead of machine code.

The stub exports its functions under the names that the bindings ask the process for. So cuda.core
and numba-cuda find the stand-in, whether or not NVIDIA's library is installed. Programs built
against that library call it by versioned names, and get the real one. The reported version is the
last one that numba-cuda considers too old for link-time optimisation, so numba-cuda hands over PTX.
If NVIDIA's library is installed, it links intermediate code (LTO IR) to PTX. That PTX is then
linked with the other inputs.
"""

from __future__ import annotations

import ctypes
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cudasync.softgpu.abi.calls.linker import Link
from cudasync.softgpu.abi.marshalling.jit_options import JitOptions
from cudasync.softgpu.abi.marshalling.pointers import get_text, get_u64, need, put_u32, put_u64
from cudasync.softgpu.abi.other_libraries import nvjitlink_library
from cudasync.softgpu.abi.other_libraries.kept_functions import keeper, shown, undefined
from cudasync.softgpu.abi.other_libraries.nvjitlink_library import (
    LTO_NOT_ENABLED,
    NvJitLinkFailure,
)
from cudasync.softgpu.abi.other_libraries.nvjitlink_options import SUCCESS, JitLinkOptions
from cudasync.softgpu.abi.stub.registry import export
from cudasync.softgpu.core.driver_types.handles import Handles, new_handle
from cudasync.softgpu.core.driver_types.result_codes import (
    INVALID_HANDLE,
    INVALID_PTX,
    INVALID_VALUE,
    NO_BINARY_FOR_GPU,
    NOT_READY,
    UNKNOWN,
    DriverFailure,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudasync.softgpu.core.machine import Machine

_VERSION: Final = (12, 2)
# nvJitLinkInputType to CUjitInputType: cubin, PTX, intermediate code, fat binary, object, library.
# "any" is taken for PTX, and refused like the rest if it is not PTX.
_KINDS: Final = {1: 0, 2: 1, 3: 5, 4: 2, 5: 3, 6: 4, 10: 0}
# nvJitLinkResult for a driver's code.
_RESULTS: Final = {
    INVALID_VALUE: 3,
    INVALID_HANDLE: 3,
    INVALID_PTX: 4,
    NO_BINARY_FOR_GPU: 8,
    UNKNOWN: 9,
}
_INTERNAL: Final = 6
_INVALID_INPUT: Final = 3
_LTOIR, _ANY = 3, 10
_LTOIR_MAGIC: Final = b"\xedCN\x7f"


class _JitLink:
    """A link in progress, its log so far, and its result once it is complete."""

    def __init__(self, options: JitLinkOptions) -> None:
        self.options = options
        self.link = Link(JitOptions(0, 0, 0))
        self.intermediate: list[tuple[bytes, str]] = []
        self.log = b""
        self.result: bytes | None = None

    def add(self, kind: int, data: bytes, name: str) -> None:
        """Add an input; intermediate code is kept for NVIDIA's library."""
        is_intermediate = kind == _LTOIR or (kind == _ANY and data.startswith(_LTOIR_MAGIC))
        if not is_intermediate:
            self.link.add(_KINDS.get(kind, -1), data, name)
            return
        if nvjitlink_library.found() is None:
            raise DriverFailure(
                NO_BINARY_FOR_GPU,
                f"{name} is intermediate code for optimising at link time, and NVIDIA's nvJitLink, "
                "which links it, is not installed: pip install nvidia-nvjitlink",
            )
        if not self.options.is_lto:
            raise NvJitLinkFailure(
                LTO_NOT_ENABLED, b"intermediate code (LTO IR) is linked with the option -lto"
            )
        self.intermediate.append((data, name))

    def complete(self) -> None:
        """Link everything; DriverFailure or NvJitLinkFailure with the log's text."""
        if self.intermediate:
            self.link.add(_KINDS[2], self._ptx(), "<intermediate code>")
        is_empty = not self.link.texts
        linked = self.options.empty_program() if is_empty else self.link.complete()
        self.result = linked + b"\0"

    def _ptx(self) -> bytes:
        """The intermediate code as PTX, with the functions that only the other PTX calls."""
        names = undefined(text for _, text in self.link.texts)
        code = keeper(names, self.options.architecture) if names else None
        more = [] if code is None else [(code, "<kept functions>")]
        ptx = self._by_nvidia(self.options.for_ptx(), "Ptx", more).rstrip(b"\0 \n")
        return ptx if code is None else shown(ptx, names)

    def linked_intermediate(self) -> bytes:
        """The linked intermediate code; NvJitLinkFailure if there was none."""
        if self.result is None or not self.intermediate:
            raise NvJitLinkFailure(_INVALID_INPUT, b"no intermediate code was linked")
        return self._by_nvidia(self.options.given, "LTOIR")

    def _by_nvidia(
        self, options: list[str], wanted: str, more: Sequence[tuple[bytes, str]] = ()
    ) -> bytes:
        library = nvjitlink_library.found()
        assert library is not None, "intermediate code is kept only where it can be linked"
        return library.link(options, [*self.intermediate, *more], wanted)

    def linked(self) -> bytes:
        """The result; DriverFailure, which becomes INTERNAL, if there is none."""
        if self.result is None:
            raise DriverFailure(NOT_READY)  # Without a detail: the log is the linker's.
        return self.result


_links: Handles[_JitLink] = Handles("nvJitLink")


def _enter(name: str, signature: str) -> Callable[[Callable[..., None]], Callable[..., int]]:
    """Enter a function whose first argument after the machine is a link's handle."""

    def enter(call: Callable[..., None]) -> Callable[..., int]:
        @wraps(call)
        def answer(machine: Machine, handle: int, *arguments: int) -> int:
            found: _JitLink | None = None
            try:
                found = _links.get(handle)
                call(machine, found, *arguments)
            except DriverFailure as failure:
                if found is not None and failure.detail:
                    found.log = failure.detail.encode() + b"\0"
                return _RESULTS.get(failure.code, _INTERNAL)
            except NvJitLinkFailure as failure:
                if found is not None and failure.log:
                    found.log = failure.log + b"\0"
                return failure.result
            return 0

        export(name, signature=f"void *{signature}", before_init=True)(answer)
        return answer

    return enter


@export("nvJitLinkVersion", signature="unsigned int *, unsigned int *", before_init=True)
def nv_jit_link_version(_machine: Machine, major: int, minor: int) -> None:
    put_u32(major, _VERSION[0])
    put_u32(minor, _VERSION[1])


@export("nvJitLinkCreate", signature="void *, unsigned int, char **", before_init=True)
def nv_jit_link_create(_machine: Machine, handle: int, count: int, options: int) -> int:
    try:
        need(handle)
        if count:
            need(options, 8 * count)
        places = [get_u64(options + 8 * index) for index in range(count)]
        found = JitLinkOptions(get_text(place) for place in places)
    except DriverFailure as failure:
        return _RESULTS[failure.code]
    if found.result == SUCCESS:
        created = new_handle()
        _links.add(created, _JitLink(found))
        put_u64(handle, created)
    return found.result


@export("nvJitLinkDestroy", signature="void *", before_init=True)
def nv_jit_link_destroy(_machine: Machine, handle: int) -> int:
    try:
        _links.remove(get_u64(handle))
    except DriverFailure as failure:
        return _RESULTS[failure.code]
    put_u64(handle, 0)
    return 0


@_enter("nvJitLinkAddData", ", int, void *, size_t, char *")
def nv_jit_link_add_data(
    _machine: Machine, found: _JitLink, kind: int, data: int, size: int, name: int
) -> None:
    need(data, size)
    title = get_text(name) if name else "<unnamed>"
    found.add(kind, ctypes.string_at(data, size), title)


@_enter("nvJitLinkAddFile", ", int, char *")
def nv_jit_link_add_file(_machine: Machine, found: _JitLink, kind: int, path: int) -> None:
    name = get_text(path)
    try:
        data = Path(name).read_bytes()
    except OSError as problem:
        raise DriverFailure(INVALID_VALUE, str(problem)) from None
    found.add(kind, data, name)


@_enter("nvJitLinkComplete", "")
def nv_jit_link_complete(_machine: Machine, found: _JitLink) -> None:
    found.complete()


def _give(name: str, what: Callable[[_JitLink], bytes]) -> None:
    """Enter a pair of functions: the length of something, and the thing itself."""

    @_enter(f"{name}Size", ", size_t *")
    def size(_machine: Machine, found: _JitLink, place: int) -> None:
        put_u64(place, len(what(found)))

    @_enter(name, ", char *")
    def get(_machine: Machine, found: _JitLink, place: int) -> None:
        data = what(found)
        if data:
            need(place, len(data))
            ctypes.memmove(place, data, len(data))


_give("nvJitLinkGetLinkedCubin", _JitLink.linked)
_give("nvJitLinkGetLinkedPtx", _JitLink.linked)
_give("nvJitLinkGetLinkedLTOIR", _JitLink.linked_intermediate)
_give("nvJitLinkGetErrorLog", lambda found: found.log)
_give("nvJitLinkGetInfoLog", lambda _: b"")
